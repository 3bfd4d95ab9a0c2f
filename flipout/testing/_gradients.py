"""Gradients are unbiased: their mean over draws is that of the brute force."""

from collections.abc import Callable

import torch
from torch import Tensor

from ._report import Check
from ._statistics import worst_mean
from ._trial import MISSING_LAW, Trial, spaced

NAME = "unbiased gradients"


def unbiased(trial: Trial) -> Check:
    """Compare the mean gradient of a loss that is not linear in the outputs.

    The loss of an example is a²/2 + a³/6. Here a is a positive combination of all its outputs, less its value at the
    mean weights, in units of its own noise. So the gradient in the mean weights depends on the variance of a, and the
    variance depends on whether all positions of an example see one weight.
    """
    claim = trial.claim
    if not claim.has_law:
        return Check(NAME, "not applicable", MISSING_LAW)
    x = trial.alike.detach().clone()
    leaves = [leaf for leaf in claim.parameters or () if leaf.requires_grad]
    if x.is_floating_point():
        leaves.append(x.requires_grad_())
    loss = _loss(trial, x)
    if not leaves or not trial.output(x).requires_grad:
        return Check(NAME, "not applicable", "The output has no gradient; give a Claim with parameters.")
    seen = _gradients_of_draws(lambda: loss(trial.output(x)), leaves, trial.draws)
    truth = _gradients_of_draws(lambda: loss(claim.run(claim.draw(), x)), leaves, trial.draws)
    pilot = _gradients_of_draws(lambda: loss(claim.run(claim.draw(), x)), leaves, max(trial.draws // 4, 50))
    size = pilot.std(0).clamp(min=1e-6 * float(pilot.abs().max()) + 1e-30)
    seen, truth, direction = seen / size, truth / size, pilot.mean(0) / size
    # More quantities: projections on the mean gradient of other draws, of all entries and of each leaf. They show a
    # bias that the entries have in common, and that none of them shows alone.
    parts = _parts(direction, leaves)
    a, b = (sample @ parts for sample in (seen, truth))
    overall = worst_mean(a[:, :1], b[:, :1], 1.0, trial.error_rate / 2)
    leaf = worst_mean(a[:, 1:], b[:, 1:], 1.0, trial.error_rate / 4)
    worst = worst_mean(seen, truth, 1.0, trial.error_rate / 4)
    ratios = (a.mean(0) / b.mean(0)).tolist()
    ratio = ratios[0] if overall.is_far or not leaf.is_far else ratios[1 + leaf.place]
    found = (
        f"The mean gradient is {ratios[0]:.2f} of that under explicit weights ({overall}); in leaf {leaf.place + 1} of "
        f"{len(leaves)} it is {ratios[1 + leaf.place]:.2f} ({leaf}); the farthest of {seen.shape[1]} entries is off by "
        f"{worst}."
    )
    is_far = overall.is_far or leaf.is_far or worst.is_far
    return Check(NAME, "failed" if is_far else "passed", found, ratio, 1.0, trial.error_rate)


def _parts(direction: Tensor, leaves: list[Tensor]) -> Tensor:
    """Return the directions (entries, 1 + leaves) of all entries, and of those of each leaf, scaled to project on."""
    sizes = [spaced(leaf.detach().reshape(1, -1)).shape[1] for leaf in leaves]
    of_leaf = torch.block_diag(*(part[:, None] for part in direction.split(sizes)))
    parts = torch.cat([direction[:, None], of_leaf], 1)
    return parts / parts.square().sum(0).clamp(min=1e-300)


def _loss(trial: Trial, x: Tensor) -> Callable[[Tensor], Tensor]:
    claim = trial.claim
    with torch.no_grad():
        centre = claim.run(claim.means(), x).flatten(1)
        weights = 0.5 + torch.rand(centre.shape[1]).to(centre)
        draws = torch.stack([claim.run(claim.draw(), x).flatten(1) @ weights for _ in range(50)])
        scale = draws.std(0).clamp(min=1e-12)

    def loss(y: Tensor) -> Tensor:
        a = (y.flatten(1) - centre) @ weights / scale
        return (a.square() / 2 + a**3 / 6).mean()

    return loss


def _gradients_of_draws(loss: Callable[[], Tensor], leaves: list[Tensor], draws: int) -> Tensor:
    """Return the gradients of many draws, (draws, entries), in float64."""
    found = []
    with torch.enable_grad():
        for _ in range(draws):
            gradients = torch.autograd.grad(loss(), leaves, allow_unused=True, materialize_grads=True)
            found.append(torch.cat([spaced(g.double().reshape(1, -1))[0] for g in gradients]))
    return torch.stack(found)
