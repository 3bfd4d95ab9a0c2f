"""KL(q ‖ p): the exact sum over all weights, every Parameter once, however often it is used."""

import math
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from .._shards import Shard
from ..distributions.prior import ClosedForm, Sampled
from ..errors import NoPrior
from ..nn.contexts import hold
from ..nn.held_weights import held_pass
from ..perturbation import Perturbation
from .posterior import CONVERT, Posterior, posteriors


def kl(model: nn.Module, *, samples: int = 1) -> Tensor:
    """The KL from the posterior to the prior, in nats, summed over all weights: shape (), differentiable.

    Closed form where there is one. Elsewhere the expectation of log p is estimated on `samples` bases of the draw that
    is held (a fresh one outside of `hold`), each averaged over all signs that flipout could give it.
    """
    terms = list(kl_terms(model, samples=samples).values())
    return torch.stack([term.to(terms[0].device) for term in terms]).sum()


def kl_terms(model: nn.Module, *, samples: int = 1) -> dict[str, Tensor]:
    """Parameter → its part of `kl`, each of shape ()."""
    samples = whole_number("samples", samples, 1, of="kl", means="the number of Monte Carlo samples")
    found = with_priors(model)
    with one_draw(model):
        terms = {posterior.name: _term(posterior, samples) for posterior in found}
    return terms | _totals({posterior: terms[posterior.name] for posterior in found})


def with_priors(model: nn.Module) -> list[Posterior]:
    found = posteriors(model)
    lacking = [posterior.name for posterior in found if posterior.prior is None]
    if lacking:
        raise NoPrior(
            f"{lacking[0]}{f' and {len(lacking) - 1} more' if lacking[1:] else ''}: a learned spread without a prior "
            f"has no KL. Name one when the model is made: {CONVERT}."
        )
    return found


def one_draw(model: nn.Module) -> AbstractContextManager[None]:
    """The draw that a Monte Carlo KL and a forward pass have in common: the one that is held, else a fresh one."""
    sampled = [posterior.layer for posterior in posteriors(model) if isinstance(posterior.prior, Sampled)]
    return nullcontext() if all(layer.flipout.held is not None for layer in sampled) else hold(model)


def _term(posterior: Posterior, samples: int) -> Tensor:
    prior, mean, std = posterior.prior, posterior.mean, posterior.std
    if isinstance(prior, ClosedForm):
        each = prior.kl(mean, std, posterior.prior_numbers)
    else:
        assert isinstance(prior, Sampled)
        numbers, delta = posterior.prior_numbers, _bases(posterior, mean, std, samples)
        # The entropy of q is exact. ±ΔŴ are all that signs can make of one weight.
        log_prior = (prior.log_prob(mean + delta, numbers) + prior.log_prob(mean - delta, numbers)) / 2
        each = -log_prior.mean(0) - std.log() - (1 + math.log(2 * math.pi)) / 2
    quiet = posterior.quiet
    return (each if quiet is None else torch.where(quiet, 0, each)).sum()


def _totals(terms: dict[Posterior, Tensor]) -> dict[str, Tensor]:
    """The terms of sharded Parameters, summed over their shards: one collective for all that are sharded alike."""
    alike: dict[Hashable, dict[Posterior, Shard]] = {}
    for posterior, term in terms.items():
        if (shard := posterior.shard) is not None:
            alike.setdefault((shard.mesh, shard.split, term.dtype), {})[posterior] = shard
    made = {}
    for shards in alike.values():
        total = next(iter(shards.values())).total(torch.stack([terms[posterior] for posterior in shards]))
        made |= zip((posterior.name for posterior in shards), total.unbind(), strict=True)
    return made


def _bases(posterior: Posterior, mean: Tensor, std: Tensor, count: int) -> Tensor:
    """(count, *shape): ΔŴ of the first bases of the held draw."""
    session, keys = held_pass(posterior.layer)
    key = keys[posterior.local]
    p = Perturbation(mean, std, posterior.distribution, session.draw.to(mean.device), key, 0, 1, mean.dtype)
    return p.deltas(0, count) if posterior.shard is None else p.shard_of_deltas(posterior.shard, count)
