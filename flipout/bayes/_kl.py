"""KL(q ‖ p): the exact sum over all weights, every Parameter once, however often it is used."""

import math
from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import chain

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from .._perturbation import Perturbation
from .._shards import Shard
from ..distributions.prior import ClosedForm, Sampled
from ..errors import NoPrior, Unsupported
from ..nn.base import Perturbed
from ..nn.contexts import hold
from ..nn.held_weights import held_pass
from ._posterior import CONVERT, Posterior, posteriors
from ._small_terms import small_terms
from .priors import Normal


def kl(model: nn.Module, *, samples: int = 1) -> Tensor:
    """Return the KL divergence from the posterior to the prior, in nats, summed over all weights.

    Closed forms are used where they exist. For other priors, E[log p] is estimated on the bases of a draw: the held
    one, or outside of `hold` a fresh one. Each base is averaged over both signs that flipout can give a weight.
    Adapters of `flipout.peft` that are not active do not count.

    Args:
        model: A model converted with `MeanField(prior=…)`.
        samples: The number of bases for priors without a closed form.

    Returns:
        A tensor of shape (), differentiable.

    Raises:
        NoPrior: A learned spread has no prior.
        NotPerturbed: The model has no learned spreads.

    Example:
        >>> loss = nll + bayes.kl(model) / len(dataset)
    """
    terms = list(kl_terms(model, samples=samples).values())
    if not terms:  # every adapter with a posterior is off
        return torch.zeros((), device=next(model.parameters()).device)
    return torch.stack([term.to(terms[0].device) for term in terms]).sum()


def kl_terms(model: nn.Module, *, samples: int = 1) -> dict[str, Tensor]:
    """Return the KL of each Parameter.

    Args:
        model: A model converted with `MeanField(prior=…)`.
        samples: The number of bases for priors without a closed form.

    Returns:
        The name of each Parameter with its part of `kl`, of shape ().

    Raises:
        NoPrior: A learned spread has no prior.
        NotPerturbed: The model has no learned spreads.

    Example:
        >>> max(bayes.kl_terms(model).items(), key=lambda term: term[1])
    """
    samples = whole_number("samples", samples, 1, of="kl", means="the number of Monte Carlo samples")
    found = with_priors(model)
    with shared_draw(model, found):
        totals = small_terms(found)
        terms = {
            posterior.name: totals[posterior] if posterior in totals else _term(posterior, samples)
            for posterior in found
        }
    return terms | _summed_over_shards({posterior: terms[posterior.name] for posterior in found})


def with_priors(model: nn.Module) -> list[Posterior]:
    """List the posteriors of a model; refuse those without a prior."""
    found = posteriors(model)
    lacking = [posterior.name for posterior in found if posterior.prior is None]
    if lacking:
        raise NoPrior(
            f"{lacking[0]}{f' and {len(lacking) - 1} more' if lacking[1:] else ''}: a learned spread without a prior "
            f"has no KL. Name one when the model is converted: {CONVERT}."
        )
    for posterior in found:
        if posterior.factors is not None:
            _check_factors(posterior)
    return found


def _check_factors(posterior: Posterior) -> None:
    """Refuse a learned covariance for which no formula of the KL is implemented."""
    if not isinstance(posterior.prior, Normal):
        raise Unsupported(
            f"{posterior.name}: {posterior.distribution} has a KL to a Normal prior only. Use "
            "LowRankNormal(prior=flipout.bayes.Normal(0.0, 1.0)), or MeanField with this prior."
        )
    if posterior.shard is not None:
        raise Unsupported(
            f"{posterior.name}: the KL of {posterior.distribution} over shards is not known yet. Use MeanField, or "
            "DistributedDataParallel."
        )


def has_sampled_priors(layers: Iterable[Perturbed]) -> bool:
    """Return True if a KL of these layers is estimated from draws of their weights."""
    distributions = chain.from_iterable(layer.flipout.distributions.values() for layer in layers)
    return any(isinstance(getattr(distribution, "prior", None), Sampled) for distribution in distributions)


def shared_draw(model: nn.Module, found: Iterable[Posterior]) -> AbstractContextManager[None]:
    """Hold one draw for a Monte Carlo KL and a forward pass, unless one is held already or none is needed.

    Args:
        model: The model.
        found: Its posteriors.
    """
    sampled = [posterior.layer for posterior in found if isinstance(posterior.prior, Sampled)]
    return nullcontext() if all(layer.flipout.held is not None for layer in sampled) else hold(model)


def _term(posterior: Posterior, samples: int) -> Tensor:
    prior, mean, std = posterior.prior, posterior.mean, posterior.std
    quiet, factors = posterior.quiet, posterior.factors
    if isinstance(prior, ClosedForm):
        of_weights = prior.kl(mean, std, posterior.prior_numbers)
    else:
        assert isinstance(prior, Sampled)
        numbers, delta = posterior.prior_numbers, _first_bases(posterior, mean, std, samples)
        # The entropy of q is exact. Signs can turn one weight's ΔŴ only into ±ΔŴ.
        log_prior = (prior.log_prob(mean + delta, numbers) + prior.log_prob(mean - delta, numbers)) / 2
        of_weights = -log_prior.mean(0) - std.log() - (1 + math.log(2 * math.pi)) / 2
    total = (of_weights if quiet is None else torch.where(quiet, 0, of_weights)).sum()
    if factors is None:
        return total
    return total + _of_factors(factors if quiet is None else torch.where(quiet, 0, factors), std, posterior)


def _of_factors(factors: Tensor, std: Tensor, posterior: Posterior) -> Tensor:
    """Return what directions U add to the KL to N(m, s²): (Σ U²/s² − log det(1 + Uᵀ diag(σ)⁻² U)) / 2."""
    prior_std = posterior.prior_numbers["std"]
    scaled = (factors / std).flatten(1)
    covariance = scaled @ scaled.T + torch.eye(len(scaled), dtype=scaled.dtype, device=scaled.device)
    return ((factors / prior_std).square().sum() - torch.logdet(covariance)) / 2


def _summed_over_shards(terms: dict[Posterior, Tensor]) -> dict[str, Tensor]:
    """Sum the terms of sharded Parameters over their ranks: one collective for all Parameters sharded alike."""
    alike: dict[Hashable, dict[Posterior, Shard]] = {}
    for posterior, term in terms.items():
        if (shard := posterior.shard) is not None:
            alike.setdefault((shard.mesh, shard.split, term.dtype), {})[posterior] = shard
    totals = {}
    for shards in alike.values():
        total = next(iter(shards.values())).total(torch.stack([terms[posterior] for posterior in shards]))
        totals |= zip((posterior.name for posterior in shards), total.unbind(), strict=True)
    return totals


def _first_bases(posterior: Posterior, mean: Tensor, std: Tensor, count: int) -> Tensor:
    """Return ΔŴ (count, *shape) of the first bases of the held draw."""
    session, keys = held_pass(posterior.layer)
    key = keys[posterior.local]
    p = Perturbation(mean, std, posterior.distribution, session.draw.to(mean.device), key, 0, 1, mean.dtype)
    return p.deltas(0, count) if posterior.shard is None else p.shard_of_deltas(posterior.shard, count)
