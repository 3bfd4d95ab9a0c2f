"""One weight per example: every token, pixel and time step of an example sees the same weights."""

import torch
from torch import Tensor

from ._claim import tensor_of
from ._report import Check
from ._statistics import worst_mean
from ._trial import Trial, finite, spaced

NAME = "one weight per example"
TRIES = 4  # exact comparisons need few draws
MOST_PAIRED = 12  # outputs of an example whose covariances are compared


def one_weight(trial: Trial) -> Check:
    """Compare with the weights themselves, else equal positions with each other, else covariances with brute force."""
    if trial.claim.weights is not None and trial.claim.plain is not None:
        return _by_weights(trial)
    if trial.positions and (result := _by_equal_positions(trial)) is not None:
        return result
    if trial.claim.has_law:
        return _by_covariance(trial)
    missing = "positions=(1,) if dimension 1 of x runs over tokens or time steps, or a Claim with plain and spread"
    return Check(NAME, "not applicable", f"Give {missing}.")


def _by_weights(trial: Trial) -> Check:
    claim, x = trial.claim, trial.x
    assert claim.weights is not None
    outputs, truths = [], []
    with torch.no_grad():
        means = claim.means()
        for _ in range(TRIES):
            y, weights = claim.weights(x)
            outputs.append(finite(tensor_of(y)))
            of_example = ({name: weight[n] for name, weight in weights.items()} for n in range(len(x)))
            truths.append(torch.cat([claim.run(means | w, x[n : n + 1]) for n, w in enumerate(of_example)]))
        y, truth = torch.stack(outputs), torch.stack(truths)
        noise = float((y - claim.run(means, x)).abs().max())
    what = f"{len(x)} examples were run one by one through the plain layer, each with the weights that it saw"
    return _exact(float((y - truth).abs().max()), noise, float(y.abs().max()), y.dtype, what)


def _by_equal_positions(trial: Trial) -> Check | None:
    """Compare positions that have the same input; None if even the plain layer treats them differently."""
    x, dims = trial.alike, trial.positions
    with torch.no_grad():
        calls = torch.stack([trial.output(x) for _ in range(TRIES)])
        if max(dims) >= calls.dim() - 1:
            return None
        y = _positions_last(calls, [dim + 1 for dim in dims])
        same = torch.ones(y.shape[-1], dtype=torch.bool)
        if trial.claim.has_law:
            plain = _positions_last(trial.claim.run(trial.claim.draw(), x), list(dims))
            centre = plain[..., _centre([calls.shape[dim + 1] for dim in dims])].unsqueeze(-1)
            same = ((plain - centre).abs() <= 1e-4 * plain.abs().max()).flatten(0, -2).all(0)
    if int(same.sum()) < 2:
        return None
    y = y[..., same]
    noise = float((y - y.mean(0)).abs().max())
    what = f"{int(same.sum())} positions of an example had the same input"
    return _exact(float((y - y[..., :1]).abs().max()), noise, float(y.abs().max()), y.dtype, what)


def _positions_last(y: Tensor, dims: list[int]) -> Tensor:
    return y.movedim(dims, list(range(-len(dims), 0))).flatten(-len(dims))


def _centre(sizes: list[int]) -> int:
    """Return the flat index of the position in the middle. At the borders a convolution sees padding."""
    index = 0
    for size in sizes:
        index = index * size + size // 2
    return index


def _exact(largest: float, noise: float, size: float, dtype: torch.dtype, what: str) -> Check:
    if noise == 0:
        return Check(NAME, "not applicable", "The layer showed no noise.")
    limit = max(1e-3, 32 * torch.finfo(dtype).eps * size / noise)
    seen = largest / noise
    found = f"{what}: outputs differ by up to {seen:.2g} of the noise, limit {limit:.1g}."
    return Check(NAME, "passed" if seen <= limit else "failed", found, seen, 0.0, 0.0)


def _by_covariance(trial: Trial) -> Check:
    """Compare the covariances between the outputs of one example with those under explicit weights."""
    seen, truth, pilot = trial.outputs(trial.x), trial.brute_force(trial.x), trial.pilot
    scale = pilot.std(0).clamp(min=1e-12)
    products = [_products(sample, scale) for sample in (seen, truth, pilot)]
    # One more quantity: the sum of all, weighted so that it is 1 if the covariances are those of the brute force.
    weights = products[2].mean(0)
    a, b = (sample @ weights / weights.square().sum() for sample in products[:2])
    ratio = float(a.mean() / b.mean())
    overall = worst_mean(a[:, None], b[:, None], 1.0, trial.error_rate / 2)
    worst = worst_mean(products[0], products[1], 1.0, trial.error_rate / 2)
    found = (
        f"Covariances between outputs of one example are {ratio:.2f} of those under explicit weights ({overall}); the "
        f"farthest of {products[0].shape[1]} is off by {worst}."
    )
    is_far = overall.is_far or worst.is_far
    return Check(NAME, "failed" if is_far else "passed", found, ratio, 1.0, trial.error_rate)


def _products(sample: Tensor, scale: Tensor) -> Tensor:
    """Return the products of all pairs of outputs of an example, (draws, examples · pairs), in units of the noise."""
    columns = spaced(torch.arange(sample.shape[-1])[None], MOST_PAIRED)[0]
    deviations = ((sample - sample.mean(0)) / scale)[..., columns] * (len(sample) / (len(sample) - 1)) ** 0.5
    rows, others = torch.triu_indices(len(columns), len(columns), 1 if len(columns) > 1 else 0)
    return (deviations[..., rows] * deviations[..., others]).flatten(1)
