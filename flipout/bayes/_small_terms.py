"""The KL of many small Parameters of one shape: one calculation for all of them.

Each Parameter alone takes about a dozen small operations, forward and backward, whose calls cost more than their
arithmetic. The adapters of a language model have hundreds of such Parameters in two or three shapes.
"""

from collections.abc import Hashable, Iterable

import torch
from torch import Tensor

from ..distributions import MeanField
from ..nn.companions import learned_companions, prior_numbers
from ._posterior import Posterior
from .priors import Laplace, Normal

_MOST = 2**17  # weights of a Parameter; larger ones gain nothing, and copies of them would cost memory


def small_terms(found: Iterable[Posterior]) -> dict[Posterior, Tensor]:
    """Return the KL of each Parameter that shares its shape, its prior and its kind of posterior with others."""
    alike: dict[Hashable, list[Posterior]] = {}
    for posterior in found:
        if type(posterior.distribution) is MeanField and type(posterior.prior) in (Normal, Laplace):
            parameter = posterior.parameter
            if parameter.numel() <= _MOST and posterior.shard is None and posterior.quiet is None:
                key = id(posterior.prior), parameter.shape, parameter.dtype, parameter.device
                alike.setdefault(key, []).append(posterior)
    return {posterior: term for group in alike.values() if len(group) > 1 for posterior, term in _terms(group).items()}


def _terms(group: list[Posterior]) -> dict[Posterior, Tensor]:
    prior = group[0].prior
    numbers = [prior_numbers(posterior.layer, posterior.local, copies=False) for posterior in group]
    assert isinstance(prior, (Normal, Laplace))
    if any(number.dim() for number in numbers[0].values()):
        return {}
    wide = torch.promote_types(group[0].parameter.dtype, torch.float32)
    means = torch.stack([posterior.parameter for posterior in group]).to(wide)
    rhos = torch.stack([learned_companions(posterior.layer, posterior.local)["rho"] for posterior in group]).to(wide)
    each = (-1, *[1] * (means.dim() - 1))
    stacked = {name: torch.stack([of[name] for of in numbers]).to(means).view(each) for name in numbers[0]}
    divergences = prior.kl(means, group[0].distribution.spread(means, rho=rhos), stacked)
    return dict(zip(group, divergences.flatten(1).sum(1).unbind(), strict=True))
