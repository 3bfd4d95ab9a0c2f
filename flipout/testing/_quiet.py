"""Noise is fresh at every call, and absent where it is disabled."""

import torch
from torch import Tensor, nn

from ._claim import Call, tensor_of
from ._report import Check
from ._trial import Trial

FRESH, QUIET = "fresh noise", "no noise when disabled"


def fresh(trial: Trial) -> Check:
    """Check that calls differ, and that the layer does not seed torch's generator itself."""
    with torch.no_grad():
        first, second = trial.output(trial.x), trial.output(trial.x)
        state = torch.get_rng_state()
        following = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            trial.output(trial.x)
            following.append(torch.rand(8))
        torch.set_rng_state(state)
    share = float((first != second).double().mean())
    if torch.equal(*following):
        found = "After a call, torch's generator was in the same state whatever the seed: the layer seeds it."
        return Check(FRESH, "failed", found, share, 1.0, 0.0)
    if not share:
        return Check(FRESH, "failed", "Two calls in a row gave the same outputs.", 0.0, 1.0, 0.0)
    found = f"Between two calls {share:.0%} of the outputs changed, and torch's generator was not reseeded."
    return Check(FRESH, "passed", found, share, 1.0, 0.0)


def quiet(trial: Trial) -> Check:
    """Compare every mode without noise with a second call, and with the plain layer at the mean weights."""
    claim, x = trial.claim, trial.x
    if not claim.disabled:
        return Check(QUIET, "not applicable", 'Give a Claim with disabled={"eval()": call}.')
    with torch.no_grad():
        noisy = torch.stack([trial.output(x) for _ in range(4)])
        noise = float((noisy - noisy.mean(0)).abs().max()) or 1.0
        truth = None if claim.plain is None else claim.run(claim.means(), x)
        found = {}
        for mode, call in claim.disabled.items():
            first, second = (tensor_of(call(x)) for _ in range(2))
            found[mode] = float((first - second).abs().max()), 0.0
            if truth is not None:
                found[mode] = found[mode][0], float((first - truth).abs().max())
    # Two calls may differ by rounding. The plain layer may also compute in another order, or another precision.
    rounding = 32 * torch.finfo(noisy.dtype).eps * float(noisy.abs().max()) / noise
    limit = max(1e-3, rounding)
    mode, (change, distance) = max(found.items(), key=lambda item: max(item[1]))
    seen = max(change, distance) / noise
    loudest, (louder, _) = max(found.items(), key=lambda item: item[1][0])
    if seen <= limit and louder / noise > rounding:
        mode, change, seen, limit = loudest, louder, louder / noise, rounding
    sentence = f"In {' and '.join(found)} two calls gave the same outputs"
    sentence += "." if truth is None else ", those of the plain layer at the mean weights."
    if seen > limit:
        sentence = f"In {mode} two calls differ by {change / noise:.2g} of the training noise"
        sentence += "." if truth is None else f", and a call differs from the plain layer by {distance / noise:.2g}."
    return Check(QUIET, "passed" if seen <= limit else "failed", sentence, seen, 0.0, 0.0)


def eval_call(model: nn.Module) -> Call:
    """Return a call of the model in eval mode. Every module gets its mode back after it."""

    def call(x: Tensor) -> object:
        modes = {module: module.training for module in model.modules()}
        model.eval()
        try:
            return model(x)
        finally:
            for module, mode in modes.items():
                module.training = mode

    return call
