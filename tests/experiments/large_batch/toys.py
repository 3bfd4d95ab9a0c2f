"""Curves that fall at a chosen speed."""

from flipout.experiments.evidence.curves import measured_iterations
from flipout.experiments.large_batch.curves import LossCurve


def curve(scheme: str, seed: int, slowness: float, noise: float = 0.0, iterations: int = 400) -> LossCurve:
    """A loss that falls as 1 / (1 + t / slowness)."""
    at = measured_iterations(iterations)
    falling = [1 / (1 + t / slowness) + noise * (-1) ** t for t in at]
    return LossCurve(scheme, seed, at, falling, [0.5] * len(at), falling, falling, falling)
