"""A check that cannot fail is no check: each helper rejects a theory that is a little wrong, and a right one as often
as it says."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from tests import statistics as s

Check = Callable[[np.random.Generator, int, float], None]


def distributed(g: np.random.Generator, n: int, wrong: float) -> None:
    s.assert_distributed(g.normal(size=n), stats.norm(wrong, 1))


def same_distribution(g: np.random.Generator, n: int, wrong: float) -> None:
    s.assert_same_distribution(g.normal(size=(n, 2)), g.normal(wrong, size=(n, 2)))


def mean(g: np.random.Generator, n: int, wrong: float) -> None:
    s.assert_mean(g.normal(size=(n, 3)), wrong)


def mean_with_known_std(g: np.random.Generator, n: int, wrong: float) -> None:
    s.assert_mean(g.exponential(size=(n, 3)), 1 + wrong, std=1.0)


def variance(g: np.random.Generator, n: int, wrong: float) -> None:
    s.assert_variance(g.normal(size=(n, 3)), 1 + 2 * wrong)


def variance_with_known_kurtosis(g: np.random.Generator, n: int, wrong: float) -> None:
    s.assert_variance(g.normal(size=(n, 3)), 1 + 2 * wrong, kurtosis=3)


def covariance(g: np.random.Generator, n: int, wrong: float) -> None:
    s.assert_covariance(g.normal(size=(n, 3)), np.eye(3) + wrong)


def same_mean(g: np.random.Generator, n: int, wrong: float) -> None:
    s.assert_same_mean(g.normal(size=(n, 3)), g.normal(wrong, size=(n, 3)))


def same_mean_paired(g: np.random.Generator, n: int, wrong: float) -> None:
    both = 100 * g.normal(size=(n, 3))
    s.assert_same_mean(both + g.normal(size=(n, 3)), both + wrong, paired=True)


def same_variance(g: np.random.Generator, n: int, wrong: float) -> None:
    s.assert_same_variance(g.normal(size=(n, 3)), g.normal(scale=1 + 2 * wrong, size=(n, 3)))


def probability(g: np.random.Generator, n: int, wrong: float) -> None:
    s.assert_probability(int(g.binomial(n, 0.3)), n, 0.3 + wrong)


def frequencies(g: np.random.Generator, n: int, wrong: float) -> None:
    s.assert_frequencies(g.multinomial(n, [0.2, 0.3, 0.5]), [0.2 + wrong / 2, 0.3, 0.5 - wrong / 2])


def uncorrelated(g: np.random.Generator, n: int, wrong: float) -> None:
    s.assert_uncorrelated(g.normal(size=(n, 3)) + np.sqrt(wrong) * g.normal(size=(n, 1)))


def uncorrelated_across(g: np.random.Generator, n: int, wrong: float) -> None:
    both = np.sqrt(wrong) * g.normal(size=(n, 1))
    s.assert_uncorrelated(g.normal(size=(n, 2)) + both, g.normal(size=(n, 2)) + both)


CHECKS: list[Check] = [
    distributed,
    same_distribution,
    mean,
    mean_with_known_std,
    variance,
    variance_with_known_kurtosis,
    covariance,
    same_mean,
    same_mean_paired,
    same_variance,
    probability,
    frequencies,
    uncorrelated,
    uncorrelated_across,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_truth_is_accepted_and_a_tenth_off_is_rejected(check: Check) -> None:
    check(np.random.default_rng(1), 10_000, 0.0)
    with pytest.raises(AssertionError):
        check(np.random.default_rng(1), 10_000, 0.1)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_false_alarms_are_as_rare_as_stated(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    stated, runs, alarms = 0.05, 300, 0
    for seed in range(runs):
        with monkeypatch.context() as patch:
            patch.setattr(s, "ALPHA", stated)
            try:
                check(np.random.default_rng(seed), s.LEAST, 0.0)
            except AssertionError:
                alarms += 1
    assert stats.binom.sf(alarms - 1, runs, stated) >= s.ALPHA, f"{alarms} false alarms in {runs}"
    assert alarms > 0


def test_an_order_of_means_is_accepted_only_where_it_is_certain() -> None:
    g = np.random.default_rng(0)
    low, high = g.normal(0.0, 1.0, 10_000), g.normal(0.1, 1.0, 10_000)
    s.assert_mean_below(low, high)
    for wrong in ((high, low), (low, g.normal(0.0, 1.0, 10_000))):
        with pytest.raises(AssertionError, match="not below"):
            s.assert_mean_below(*wrong)


def test_too_few_draws_are_refused() -> None:
    with pytest.raises(AssertionError, match="too few"):
        s.assert_mean(np.zeros(10), 0.0)


def test_a_constant_has_to_equal_its_theory() -> None:
    s.assert_mean(np.ones(s.LEAST), 1.0)
    with pytest.raises(AssertionError, match="missed"):
        s.assert_mean(np.ones(s.LEAST), 1.001)
