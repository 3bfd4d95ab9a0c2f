"""Looks at a curve are a tenth apart."""

from itertools import pairwise

from flipout.experiments.evidence.curves import cost, legs, measured_iterations


def test_looks_are_a_tenth_apart_from_the_start_to_the_end():
    at = measured_iterations(1000)
    assert (at[0], at[1], at[-1]) == (0, 1, 1000)
    assert all(after - before <= max(1.0, 0.15 * before) for before, after in pairwise(at))
    assert measured_iterations(1) == [0, 1]


def test_legs_lead_from_one_look_to_the_next():
    way = legs(1000)
    assert [now for _, now in way] == measured_iterations(1000)
    assert [before for before, _ in way] == [0, *measured_iterations(1000)[:-1]]
    assert sum(map(cost, way)) == 1000 + len(way)
