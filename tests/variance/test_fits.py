"""Fits and slopes have the error rates that they state, even if the errors come from few repeats."""

import functools
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from flipout.errors import InvalidArgument
from flipout.variance import Fit, Measurements, Record, Slope
from tests.statistics import ALPHA

COUNT = 1000  # simulated curves
A, B = 0.3, 5.0
REPEATS = [(50, 5), (5, 5), (3, 3)]  # at the smaller and the larger half of the batch sizes
# Relative spread of one estimate, at the smallest and at the largest batch size.
SPREADS = [(0.05, 0.05), (0.03, 0.1), (0.1, 0.03)]


def sizes(count: int) -> np.ndarray:
    return 2.0 ** np.arange(count)


def simulated(
    variances: np.ndarray, repeats: tuple[int, int], spread: tuple[float, float], count: int = COUNT
) -> Measurements:
    """Simulate curves at N = 1, 2, 4, …. An estimate is the true variance times χ²_f / f, where f gives its spread."""
    rng = np.random.default_rng(0)
    half = len(variances) // 2
    records = []
    for i, relative in enumerate(np.geomspace(*spread, len(variances))):
        k, f = repeats[i >= half], 2 / relative**2
        estimates = variances[i] * rng.chisquare(f, (count, k)) / f
        means, errors = estimates.mean(1), estimates.std(1, ddof=1) / k**0.5
        records += [
            Record(f"{j}", "flipout", 2**i, mean, error, 0.0, 0.0, 200, k)
            for j, (mean, error) in enumerate(zip(means.tolist(), errors.tolist(), strict=True))
        ]
    return Measurements(records)


def assert_rate(happened: Sequence[bool], low: float, high: float) -> None:
    """Assert that the event has a probability from `low` to `high`. If it has, this fails with probability ALPHA."""
    for bound, alternative in ((low, "less"), (high, "greater")):
        p = float(stats.binomtest(sum(happened), len(happened), bound, alternative).pvalue)
        assert p >= ALPHA / 2, f"{np.mean(happened):.4f} of {len(happened)}, expected from {low} to {high}"


Case = tuple[int, tuple[int, int], tuple[float, float]]
CASES: list[Case] = [(n, repeats, spread) for n in (14, 8) for repeats in REPEATS for spread in SPREADS]


@functools.cache
def fits(case: Case) -> list[Fit]:
    count, repeats, spread = case
    return simulated(A + B / sizes(count), repeats, spread).fit()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_p_is_the_rate_at_which_a_true_form_is_rejected(case: Case) -> None:
    assert_rate([fit.p < 0.01 for fit in fits(case)], 0.005, 0.015)
    assert_rate([fit.p < 0.1 for fit in fits(case)], 0.07, 0.12)


def test_p_is_that_rate_over_all_cases() -> None:
    found = [fit.p for case in CASES for fit in fits(case)]
    assert_rate([p < 0.01 for p in found], 0.008, 0.012)
    assert_rate([p < 0.001 for p in found], 0.0005, 0.002)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_intervals_of_the_parameters_cover_the_truth(case: Case) -> None:
    for name, truth in (("a", A), ("b", B)):
        values, errors, freedoms = (
            np.array([getattr(fit, name + field) for fit in fits(case)]) for field in ("", "_error", "_freedom")
        )
        covered = np.abs(values - truth) < stats.t.ppf(0.95, freedoms) * errors
        assert_rate(covered.tolist(), 0.87, 0.91)  # Satterthwaite's approximation: the level is 0.9


@pytest.mark.parametrize("repeats", REPEATS[:2], ids=str)
@pytest.mark.parametrize("spread", SPREADS, ids=str)
def test_another_power_of_n_is_detected(repeats: tuple[int, int], spread: tuple[float, float]) -> None:
    assert max(fit.p for fit in simulated(B * sizes(14) ** -0.8, repeats, spread, 50).fit()) < 1e-6


@pytest.mark.parametrize("repeats", REPEATS[:2], ids=str)
@pytest.mark.parametrize("place", [0, 4, 9, 13])
def test_an_outlier_is_detected(repeats: tuple[int, int], place: int) -> None:
    variances = A + B / sizes(14)
    variances[place] *= 1.3
    assert max(fit.p for fit in simulated(variances, repeats, (0.03, 0.03), 50).fit()) < 1e-6


@pytest.mark.parametrize("repeats", REPEATS, ids=str)
@pytest.mark.parametrize("spread", SPREADS[1:], ids=str)
def test_intervals_of_slopes_cover_the_truth(repeats: tuple[int, int], spread: tuple[float, float]) -> None:
    slopes = simulated(B / sizes(14), repeats, spread, 600).slope()
    assert_rate([slope.low < -1 < slope.high for slope in slopes], 0.87, 0.91)
    assert max(slope.error for slope in slopes) < 0.03


def exact(*variances: float, error: float = 0.0) -> Measurements:
    return Measurements(Record("w", "flipout", 2**i, v, error, v, v, 200, 5) for i, v in enumerate(variances))


def test_deterministic_gradients() -> None:
    (fit,) = exact(*(A + B / sizes(6))).fit()
    assert (fit.a, fit.b) == pytest.approx((A, B))
    assert fit.p > 0.9
    assert fit.a_error < 1e-10
    (wrong,) = exact(*B * sizes(6) ** -0.8).fit()
    assert wrong.p < 1e-6
    (slope,) = exact(*B / sizes(6)).slope()
    assert (slope.low, slope.high) == pytest.approx((-1.0, -1.0))


def test_zero_variance_at_all_sizes_or_at_one() -> None:
    (fit,) = exact(0.0, 0.0, 0.0).fit()
    assert (fit.a, fit.b, fit.p) == (0.0, 0.0, 1.0)
    (fit,) = exact(1.0, 0.5, 0.0, 0.1, error=0.01).fit()
    assert np.isfinite([fit.a, fit.a_error, fit.b, fit.b_error, fit.chi2, fit.p]).all()
    with pytest.raises(InvalidArgument, match="above 0"):
        exact(1.0, 0.0).slope()


@pytest.mark.parametrize("error", [0.0, 0.1])
def test_two_points_fit_any_curve(error: float) -> None:
    (fit,) = exact(2.0, 1.5, error=error).fit()
    assert (fit.a, fit.b) == pytest.approx((1.0, 1.0))
    assert (fit.chi2, fit.freedom, fit.p) == (0.0, 0, 1.0)
    assert fit.a_error == pytest.approx(error * 5**0.5, abs=1e-9)  # a = 2 y₂ − y₁


def test_a_fit_needs_two_sizes_and_two_repeats() -> None:
    once = Measurements(Record("w", "flipout", n, 1.0, float("inf"), 0.0, 0.0, 200, 1) for n in (1, 2))
    for measured in (once, exact(1.0), Measurements([*exact(1.0), *exact(1.1)])):
        for method in (measured.fit, measured.slope):
            with pytest.raises(InvalidArgument, match="w, flipout: a fit needs two batch sizes"):
                method()


def test_reprs_are_short() -> None:
    fit = Fit("0.weight", "flipout", 1 / 3, 1 / 70, 5.0, 0.2, 1.0, 4, 2 / 3, 9.0, 9.0)
    assert repr(fit) == "Fit(0.weight, flipout: (0.3333 ± 0.014) + (5 ± 0.2) / N, p=0.67)"
    slope = Slope("0.weight", "flipout", -2 / 3, 0.1, -0.8, -0.5)
    assert repr(slope) == "Slope(0.weight, flipout: -0.6667, 90 %: -0.8 to -0.5)"
