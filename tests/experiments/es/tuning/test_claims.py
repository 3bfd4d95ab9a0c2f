"""Scores of curves, and what is chosen by them."""

import math

import pytest

from flipout.experiments.es.curves import EsCurve, EsCurves
from flipout.experiments.es.tuning.claims import best, found, score


def curve(name: str, errors: list[float], loss: float = 1.0, seed: int = 0) -> EsCurve:
    at = list(range(len(errors)))
    return EsCurve(name, seed, at, [loss] * len(errors), errors, errors, 0.1)


def test_the_score_is_a_geometric_mean_over_measurements_and_seeds():
    assert score([curve("a", [0.8, 0.2]), curve("a", [0.1, 0.4], seed=1)]) == pytest.approx(
        (0.8 * 0.2 * 0.1 * 0.4) ** 0.25
    )
    assert score([curve("a", [0.5, 0.0])]) == pytest.approx((0.5 * 1e-4) ** 0.5)
    assert score([curve("a", [0.5, 0.5], loss=math.nan)]) == math.inf


def test_a_setting_that_diverged_is_not_chosen():
    curves = EsCurves([curve("FlipES a", [0.5, 0.1], loss=math.inf), curve("FlipES b", [0.5, 0.4])])
    assert best(curves, curves.names) == "FlipES b"


def test_the_check_compares_the_chosen_settings():
    slow, fast = [0.9, 0.7, 0.5, 0.3, 0.1], [0.9, 0.5, 0.1, 0.1, 0.1]
    curves = EsCurves([curve("FlipES a", [0.9] * 5), curve("FlipES b", slow), curve("backprop r", fast)])
    numbers, (start, check) = found(curves)
    assert start.holds
    assert numbers["FlipES: chosen"] == "FlipES b"
    assert numbers["FlipES b: held-out error at the end"] == pytest.approx(0.1)
    assert check.value == pytest.approx(2.0)
    assert check.holds
    assert check.interval is None


def test_candidates_that_begin_as_other_networks_are_found_out():
    curves = EsCurves([curve("FlipES a", [0.9, 0.5]), curve("backprop r", [0.8, 0.4])])
    _, (start, _) = found(curves)
    assert not start.holds
    assert start.value == pytest.approx(0.1)
