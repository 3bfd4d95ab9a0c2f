"""Times of a small network."""

from flipout.experiments.es.scaling.claims import Times


def times(flip: float, core: float, ideal: float = 2.0) -> Times:
    return Times(*([value, value * 1.02] for value in (flip, ideal, 0.01, core)))
