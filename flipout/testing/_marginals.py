"""The right marginal: mean, spread and shape of the weights, or of the outputs that they give."""

import torch
from torch import Tensor

from ._report import Check
from ._statistics import kolmogorov, squared_deviations, worst_mean
from ._trial import MISSING_LAW, Trial, spaced

MEAN, SPREAD, SHAPE = "mean of the weights", "spread of the weights", "shape of the noise"
MOST_SHAPES = 16  # quantities whose whole distribution is compared


def mean(trial: Trial) -> Check:
    """Compare the mean of every weight or output with brute force."""
    if not trial.claim.has_law:
        return Check(MEAN, "not applicable", MISSING_LAW)
    a, b, scale, what = trial.marginals
    worst = worst_mean(a / scale, b / scale, 1.0, trial.error_rate)
    distance = float((a.mean(0) - b.mean(0))[worst.place] / scale[worst.place])
    found = f"The farthest of {a.shape[1]} {what} is {abs(distance):.2g} of its noise off ({worst})."
    return Check(MEAN, "failed" if worst.is_far else "passed", found, distance, 0.0, trial.error_rate)


def spread(trial: Trial) -> Check:
    """Compare the variance of every weight or output with brute force, and of all of them together."""
    if not trial.claim.has_law:
        return Check(SPREAD, "not applicable", MISSING_LAW)
    a, b, scale, what = trial.marginals
    first, second = squared_deviations(a / scale), squared_deviations(b / scale)
    overall = worst_mean(first.mean(1, keepdim=True), second.mean(1, keepdim=True), 1.0, trial.error_rate / 2)
    worst = worst_mean(first, second, 1.0, trial.error_rate / 2)
    ratio = float(first.mean() / second.mean()) ** 0.5
    found = (
        f"The standard deviation of {a.shape[1]} {what} is {ratio:.3f} of the claimed one ({overall}); the farthest is "
        f"off by {worst}."
    )
    is_far = overall.is_far or worst.is_far
    return Check(SPREAD, "failed" if is_far else "passed", found, ratio, 1.0, trial.error_rate)


def shape(trial: Trial) -> Check:
    """Compare the kurtosis over all quantities, and the whole distribution of some of them."""
    if not trial.claim.has_law:
        return Check(SHAPE, "not applicable", MISSING_LAW)
    a, b, scale, what = trial.marginals
    is_noisy = b.std(0) > 0.01 * b.std(0).max()
    a, b = ((sample / scale)[:, is_noisy] for sample in (a, b))
    standard = [(sample - sample.mean(0)) / sample.std(0).clamp(min=1e-6) for sample in (a, b)]
    fourth = [sample**4 for sample in standard]
    # Outputs of basis inputs are single weights, averaged separately: sums of weights are nearer to a Gaussian.
    single = torch.arange(len(is_noisy))[is_noisy] >= len(trial.x) * (len(is_noisy) // trial.marginal_rows)
    pools = [pool for pool in (~single, single) if pool.any()]
    means, truths = (torch.stack([f[:, pool].mean(1) for pool in pools], 1) for f in fourth)
    overall = worst_mean(means, truths, 1.0, trial.error_rate / 2)
    # Standardised samples, so that a wrong mean or spread alone does not count as a wrong shape; and the samples as
    # they are, since noise of a few values, once standardised by each sample's own moments, would never agree.
    distance, p = max(_distance(a, b), _distance(*standard), key=lambda test: test[1])
    seen, expected = (float(f[:, pools[overall.place]].mean()) for f in fourth)
    count = int(pools[overall.place].sum())
    found = (
        f"The kurtosis of {count} {what} is {seen:.2f}, that of the claimed noise {expected:.2f} ({overall}). "
        f"Distribution functions differ by up to {distance:.2f} (Kolmogorov–Smirnov, p = {p:.2g})."
    )
    is_far = overall.is_far or p < trial.error_rate / 2
    return Check(SHAPE, "failed" if is_far else "passed", found, seen, expected, trial.error_rate)


def _distance(a: Tensor, b: Tensor) -> tuple[float, float]:
    """Return the largest distance of distribution functions, and the p-value of the smallest of all tests."""
    columns = zip(*(spaced(sample, MOST_SHAPES).unbind(1) for sample in (a, b)), strict=True)
    tests = [kolmogorov(x, y) for x, y in columns]
    distance, p = min(tests, key=lambda test: test[1])
    return distance, min(1.0, p * len(tests))
