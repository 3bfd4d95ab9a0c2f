"""Checks of the log-likelihoods that an ELBO is computed from."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidInput, NonFinite
from ._terms import Terms

_ROUNDING = 0.1  # a log-probability may be this much above 0 in low precision


def count_examples(log_likelihoods: Any, target: Any, dim: int, seen: int | None, num_data: int) -> int:
    """Return the number of examples in dimension `dim`.

    Args:
        log_likelihoods: What the likelihood returned.
        target: The targets.
        dim: The dimension of the examples.
        seen: The number of examples that the model's layers saw, None if unknown.
        num_data: The number of examples in the training set.
    """
    if not isinstance(log_likelihoods, Tensor) or log_likelihoods.dim() <= dim:
        is_tensor = isinstance(log_likelihoods, Tensor)
        returned = f"a tensor of shape {tuple(log_likelihoods.shape)}" if is_tensor else repr(type(log_likelihoods))
        raise InvalidInput(
            f"The likelihood returned {returned}; expected log-likelihoods with the examples in dimension {dim}, such "
            "as (N,). Leave out its mean or sum (reduction='none'), and negate a loss."
        )
    shape, examples = tuple(log_likelihoods.shape), log_likelihoods.shape[dim]
    if isinstance(target, Tensor) and (target.dim() <= dim or target.shape[dim] != examples):
        raise InvalidInput(
            f"The likelihood returned shape {shape} for a target of shape {tuple(target.shape)}; expected the same "
            f"number of examples in dimension {dim}."
        )
    if not examples:
        raise InvalidInput("ELBO of a batch without examples. Leave it out.")
    if seen is not None and examples != seen and seen in shape:
        raise InvalidInput(
            f"Log-likelihoods of shape {shape}, so {examples} examples in dimension {dim}; the model's layers saw "
            f"{seen} examples. Say where they are: ELBO(…, batch_dim={shape.index(seen)})."
        )
    if seen and examples != seen and not torch.compiler.is_compiling():
        warnings.warn(
            f"Log-likelihoods of {examples} examples, where the model's layers saw {seen}: num_data has to count "
            f"the {examples}. If tokens are folded into the batch, (N·T, …), and num_data={num_data} counts "
            "sequences, the KL is T times too large: return (N, T, …) and give targets (N, T).",
            RuntimeWarning,
            stacklevel=5,
        )
    if examples > num_data:
        warnings.warn(
            f"A batch of {examples} with num_data={num_data}: num_data is the number of examples in the training set, "
            "len(dataset), not the number of batches.",
            RuntimeWarning,
            stacklevel=5,
        )
    return examples


def check_finite(terms: Terms) -> None:
    """Refuse a loss that is infinite or NaN."""
    if bool(terms.loss.isfinite()):
        return
    values = {"log-likelihood": terms.log_likelihood.item(), "KL": terms.kl.item()}
    bad = " and ".join(f"the {name} is {value}" for name, value in values.items() if not math.isfinite(value))
    raise NonFinite(
        f"The loss is {terms.loss.item()}: {bad or 'its terms are finite, their sum is not'}. Lower the learning "
        "rate or clip the gradient, and look for infinite inputs; to skip such steps, use flipout.bayes.Guard "
        "with ELBO(…, check=False)."
    )


def check_not_a_loss(log_likelihoods: Tensor, target: Any) -> None:
    """Refuse positive log-probabilities of discrete targets: a function that returns a loss would be maximised."""
    if not isinstance(target, Tensor) or target.is_floating_point() or target.is_complex():
        return  # densities may be above 1
    largest = log_likelihoods.detach().max().item()
    if largest > _ROUNDING:
        raise InvalidInput(
            f"The likelihood returned values up to {largest:.4g} for targets of dtype {target.dtype}; expected "
            "log-probabilities, ≤ 0, which are maximised. Negate a loss: lambda output, target: -loss(output, "
            "target). For a density, give target.float()."
        )
