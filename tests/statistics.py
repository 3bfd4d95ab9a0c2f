"""Statistical assertions, all with the same error rate.

Each assertion compares a sample with a theory. If the theory holds, it fails with probability ALPHA: exactly, or as
far as the central limit theorem is exact for at least LEAST draws. The comparisons of one call share ALPHA
(Bonferroni). Seeds are fixed, so a test that passes once always passes. ALPHA says how unlikely a failure by chance
was. Dimension 0 of a sample is the draw; the other dimensions are the quantities that are compared.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from torch import Tensor

ALPHA = 1e-6
LEAST = 1000

Sample = Tensor | ArrayLike
Array = NDArray[np.float64]


class Theory(Protocol):
    def cdf(self, x: Any, /) -> Any: ...


def assert_distributed(sample: Sample, theory: Theory) -> None:
    """Kolmogorov–Smirnov: all numbers of the sample are independent draws from a continuous distribution."""
    p = float(stats.kstest(_array(sample).ravel(), theory.cdf).pvalue)
    assert p >= ALPHA, f"the sample does not follow the theory: p = {p:.2g} < {ALPHA:g}"


def assert_same_distribution(a: Sample, b: Sample) -> None:
    """Kolmogorov–Smirnov between two samples, for each quantity."""
    first, second = _columns(a), _columns(b)
    tests: list[Any] = [stats.ks_2samp(x, y) for x, y in zip(first.T, second.T, strict=True)]
    p = min(test.pvalue for test in tests)
    assert p >= ALPHA / first.shape[1], f"the samples differ in distribution: p = {p:.2g} in {first.shape[1]} tests"


def assert_mean(sample: Sample, theory: Sample, std: Sample | None = None) -> None:
    """Compare the mean of each quantity. The `std` of one draw comes from theory, or else from the sample."""
    draws, expected = _columns(sample), _like(theory, sample)
    spread = draws.std(0, ddof=1) if std is None else _like(std, sample)
    _check(draws.mean(0) - expected, spread / np.sqrt(len(draws)), "mean", expected, np.abs(draws).max())


def assert_variance(sample: Sample, theory: Sample, kurtosis: float | None = None) -> None:
    """Compare the variance of each quantity. Its error comes from the kurtosis (a Gaussian has 3) or the sample."""
    draws, expected = _columns(sample), _like(theory, sample)
    squares = squared_deviations(draws)
    spread = squares.std(0, ddof=1) if kurtosis is None else expected * np.sqrt(kurtosis - 1)
    _check(squares.mean(0) - expected, spread / np.sqrt(len(draws)), "variance", expected, np.square(draws).max())


def assert_covariance(sample: Sample, theory: Sample) -> None:
    """Compare all covariances of d quantities with a (d, d) matrix."""
    draws = _columns(sample)
    centred = draws - draws.mean(0)
    products = (centred[:, :, None] * centred[:, None, :]).reshape(len(draws), -1)
    expected = _array(theory).ravel()
    error = products.std(0, ddof=1) / np.sqrt(len(draws))
    covariance = products.sum(0) / (len(draws) - 1)
    _check(covariance - expected, error, "covariance", expected, np.square(draws).max())


def assert_same_mean(a: Sample, b: Sample, *, paired: bool = False) -> None:
    """Each quantity has the same mean in both samples. `paired` if draw i of one belongs to draw i of the other."""
    first, second = _columns(a), _columns(b)
    if paired:
        assert_mean(first - second, 0.0)
        return
    error = np.sqrt(first.var(0, ddof=1) / len(first) + second.var(0, ddof=1) / len(second))
    _check(first.mean(0) - second.mean(0), error, "mean of the other sample", second.mean(0), np.abs(first).max())


def assert_same_variance(a: Sample, b: Sample) -> None:
    assert_same_mean(squared_deviations(a), squared_deviations(b))


def assert_mean_below(a: Sample, b: Sample) -> None:
    """The mean of a is below that of b. If it were not, this would pass with probability ALPHA at most."""
    first, second = _columns(a).sum(1), _columns(b).sum(1)
    _enough(len(first), len(second))
    error = np.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
    z = (second.mean() - first.mean()) / error
    assert z > stats.norm.isf(ALPHA), f"{first.mean():.4g} is not below {second.mean():.4g}: z = {z:.2f}"


def assert_probability(successes: int, trials: int, p: float) -> None:
    """An exact binomial test."""
    found = float(stats.binomtest(int(successes), int(trials), p).pvalue)
    assert found >= ALPHA, f"{successes} of {trials} do not have probability {p}: p = {found:.2g} < {ALPHA:g}"


def assert_frequencies(counts: Sample, probabilities: Sample | None = None) -> None:
    """Chi-square. Without probabilities, all outcomes are equally likely."""
    found = _array(counts).ravel()
    share = 1 / len(found) if probabilities is None else _array(probabilities).ravel()
    expected = np.broadcast_to(found.sum() * share, found.shape)
    assert expected.min() >= 10, "chi-square needs ten expected counts in each cell"
    p = float(stats.chisquare(found, expected).pvalue)
    assert p >= ALPHA, f"counts {found} where {expected} are expected: p = {p:.2g} < {ALPHA:g}"


def assert_uncorrelated(a: Sample, b: Sample | None = None) -> None:
    """Compare every pair of quantities of one sample, or every quantity of one sample with every one of the other."""
    first = _standard(a)
    second = first if b is None else _standard(b)
    correlation = first.T @ second / len(first)
    pairs = correlation[np.triu_indices(len(correlation), 1)] if b is None else correlation.ravel()
    assert pairs.size, "there is no pair to compare"
    _check(pairs, np.full(pairs.shape, 1 / np.sqrt(len(first))), "correlation", np.zeros(pairs.shape), 1.0)


def squared_deviations(sample: Sample) -> Array:
    """Return the squared deviations from the sample mean, scaled so that their mean is the unbiased variance."""
    draws = _columns(sample)
    return (draws - draws.mean(0)) ** 2 * (len(draws) / (len(draws) - 1))


def _check(difference: Array, error: Array, what: str, expected: Array, size: float) -> None:
    """Refuse a difference of too many standard errors. Rounding of numbers as large as `size` is tolerated."""
    limit = stats.norm.isf(ALPHA / 2 / difference.size)
    worst = int(np.argmax(np.abs(difference) - limit * error))
    assert abs(difference[worst]) <= limit * error[worst] + 1e-13 * size, (
        f"{what} {expected[worst]:.6g} is missed by {difference[worst]:.3g}, standard error {error[worst]:.3g}, "
        f"limit {limit:.2f} standard errors (quantity {worst} of {difference.size})"
    )


def _standard(sample: Sample) -> Array:
    draws = _columns(sample)
    _enough(len(draws))
    return (draws - draws.mean(0)) / draws.std(0)


def _columns(sample: Sample) -> Array:
    """Return the sample as (draws, quantities)."""
    draws = _array(sample)
    _enough(len(draws))
    return draws.reshape(len(draws), -1)


def _like(theory: Sample, sample: Sample) -> Array:
    return np.broadcast_to(_array(theory), _array(sample).shape[1:]).ravel()


def _array(sample: Sample) -> Array:
    array = np.asarray(sample.detach().double().numpy() if isinstance(sample, Tensor) else sample, dtype=np.float64)
    assert np.isfinite(array).all(), "the sample is not finite"
    return array


def _enough(*counts: int) -> None:
    assert min(counts) >= LEAST, f"{min(counts)} draws are too few for a normal approximation; {LEAST} are needed"
