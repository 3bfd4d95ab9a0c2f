"""Tails, quantiles and intervals agree with scipy's."""

import math

import pytest
from scipy import stats

from flipout._student import f_quantile, f_tail, interval, share_interval, t_quantile, t_tail

FREEDOMS = [1, 1.5, 2, 4, 7.3, 49, 500, 1e5, math.inf]


def close(expected: float) -> object:
    return pytest.approx(expected, rel=1e-8, abs=1e-300)


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize("t", [-40.0, -3.0, 0.0, 0.1, 1.0, 5.0, 40.0, 1e6])
def test_t_tail(freedom: float, t: float) -> None:
    assert t_tail(t, freedom) == close(float(stats.t.sf(t, freedom)))


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize("probability", [0.05, 0.5, 0.95, 0.9999])
def test_t_quantile(freedom: float, probability: float) -> None:
    expected = float(stats.t.ppf(probability, freedom))
    assert t_quantile(probability, freedom) == pytest.approx(expected, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("numerator", [1, 1.7, 6, 12.2])
@pytest.mark.parametrize("denominator", [1, 5.5, 60, 1e5])
@pytest.mark.parametrize("ratio", [0.0, 1e-3, 0.5, 1.0, 3.0, 10.0, 1e3, 1e24])
def test_f_tail(numerator: float, denominator: float, ratio: float) -> None:
    assert f_tail(ratio, numerator, denominator) == close(float(stats.f.sf(ratio, numerator, denominator)))


@pytest.mark.parametrize(("numerator", "denominator"), [(1.0, 1.0), (3.5, 20.0), (59.0, 59.0), (200.0, 7.0)])
@pytest.mark.parametrize("probability", [0.05, 0.9, 0.999])
def test_f_quantile(numerator: float, denominator: float, probability: float) -> None:
    assert f_quantile(probability, numerator, denominator) == close(
        float(stats.f.ppf(probability, numerator, denominator))
    )


def test_interval() -> None:
    mean, error, low, high = interval([1.0, 2.0, 4.0, 7.0])
    assert (low, high) == pytest.approx(stats.t.interval(0.9, 3, mean, error))
    assert interval([3.0]) == (3.0, math.inf, -math.inf, math.inf)


@pytest.mark.parametrize(("successes", "count"), [(0, 1), (3, 7), (4_780, 4_800), (10, 10)])
def test_the_interval_of_a_share_is_wilsons(successes: int, count: int) -> None:
    expected = stats.binomtest(successes, count).proportion_ci(0.9, "wilson")
    assert share_interval(successes / count, count) == pytest.approx((expected.low, expected.high), abs=1e-9)
