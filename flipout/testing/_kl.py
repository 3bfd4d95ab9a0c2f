"""The KL is the sum over all weights of its closed form, and is counted once."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ._claim import value_of
from ._report import Check
from ._trial import Trial

CLOSED, ONCE = "KL in closed form", "KL counted once"
MISSING = "Give a Claim with kl, Gaussian noise and a Gaussian prior."
TOLERANCE = 1e-4


def closed_form(trial: Trial) -> Check:
    """Compare the layer's KL with the sum over all weights that have noise."""
    truth = _truth(trial)
    if trial.claim.kl is None or truth is None:
        return Check(CLOSED, "not applicable", MISSING)
    seen = _seen(trial, trial.x)
    is_close = abs(seen - truth) <= TOLERANCE * abs(truth)
    found = f"The layer says {seen:.6g}; the sum over all weights of KL(N(mean, spread²) ‖ prior) is {truth:.6g}."
    return Check(CLOSED, "passed" if is_close else "failed", found, seen, truth, 0.0)


def counted_once(trial: Trial) -> Check:
    """Compare the KL after one call with that after others: again, with fewer examples, with fewer positions."""
    if trial.claim.kl is None:
        return Check(ONCE, "not applicable", "Give a Claim with kl.")
    first, inputs = _seen(trial, trial.x), {"a second call": trial.x}
    if len(trial.x) > 1:
        inputs["one example"] = trial.x[:1]
    for dim in trial.positions:
        if trial.x.shape[dim] > 1:
            inputs[f"half of dimension {dim}"] = trial.x.narrow(dim, 0, (trial.x.shape[dim] + 1) // 2)
    ratios = {what: first / _seen(trial, x) for what, x in inputs.items()}
    what, ratio = max(ratios.items(), key=lambda item: abs(item[1] - 1))
    found = f"The KL is the same after {', '.join(ratios)}."
    if abs(ratio - 1) > TOLERANCE:
        found = f"The KL of the whole batch is {ratio:.3g} times that of {what}."
    return Check(ONCE, "passed" if abs(ratio - 1) <= TOLERANCE else "failed", found, ratio, 1.0, 0.0)


def _seen(trial: Trial, x: Tensor) -> float:
    assert trial.claim.kl is not None
    with torch.no_grad():
        return float(trial.claim.kl(x))


def _truth(trial: Trial) -> float | None:
    claim = trial.claim
    noises = claim.noise.values() if isinstance(claim.noise, Mapping) else [claim.noise]
    if not claim.has_law or claim.prior is None or any(noise is not torch.randn for noise in noises):
        return None
    total = 0.0
    with torch.no_grad():
        means = claim.means()
        for name, spread in claim.spreads().items():
            prior = claim.prior[name] if isinstance(claim.prior, Mapping) else claim.prior
            mean, std = (value_of(number, spread).double() for number in prior)
            kept = spread > 0  # a padding row has no noise, and no KL
            posterior = torch.distributions.Normal(means[name].double()[kept], spread.double()[kept])
            divergence = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(mean[kept], std[kept]))
            total += float(divergence.sum())
    return total
