"""The tests behind the checks have the error rate that they promise, and the p-values of scipy."""

import math

import pytest
import torch

from flipout._student import t_quantile
from flipout.testing._statistics import ROUNDING, kolmogorov, squared_deviations, worst_mean


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_quantity_that_is_farthest_off_is_named() -> None:
    a, b = normal(400, 6, seed=1), normal(400, 6, seed=2)
    a[:, 4] += 1.0
    worst = worst_mean(a, b, 1.0, 1e-3)
    assert worst.place == 4
    assert worst.is_far
    # A shift of 1 between means whose difference has a standard error of √(2/400).
    assert worst.errors == pytest.approx(float(a[:, 4].mean() - b[:, 4].mean()) / math.sqrt(2 / 400), rel=0.1)
    assert worst.limit == pytest.approx(t_quantile(1 - 1e-3 / 12, math.inf))
    assert "standard errors, limit" in str(worst)


def test_equal_means_are_refused_as_often_as_promised() -> None:
    """Of 2,000 comparisons of equal means, each of 5 quantities, 5 % may fail: 100 ± 4 · √95."""
    samples = normal(2000, 200, 5, seed=3)
    refused = sum(worst_mean(sample, 0.0, 1.0, 0.05).is_far for sample in samples)
    assert abs(refused - 100) < 4 * math.sqrt(2000 * 0.05 * 0.95)


def test_differences_within_rounding_do_not_count() -> None:
    constant = torch.ones(50, 2, dtype=torch.float64)
    assert worst_mean(constant * (1 + ROUNDING / 2), constant, 1.0, 1e-6).errors == 0
    assert worst_mean(constant * (1 + 2 * ROUNDING), constant, 1.0, 1e-6).is_far
    assert not worst_mean(constant * (1 + 2 * ROUNDING), constant, 10.0, 1e-6).is_far


def test_squares_average_to_the_unbiased_variance() -> None:
    sample = normal(7, 3)
    torch.testing.assert_close(squared_deviations(sample).mean(0), sample.var(0))


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.4])
def test_distribution_functions_are_compared_as_by_scipy(shift: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    a, b = normal(300, seed=4) + shift, normal(500, seed=5)
    distance, p = kolmogorov(a, b)
    truth = stats.ks_2samp(a.numpy(), b.numpy(), method="exact")
    assert distance == pytest.approx(truth.statistic, abs=0.01)  # values are rounded first
    assert p == pytest.approx(truth.pvalue, rel=0.25, abs=1e-5)


def test_values_that_differ_by_rounding_tie() -> None:
    coin = (normal(400, seed=6) > 0).double()
    other = (normal(400, seed=7) > 0).double()
    assert kolmogorov(coin + 1e-7, other) == kolmogorov(coin, other)
    assert kolmogorov(coin, coin) == (0.0, 1.0)
