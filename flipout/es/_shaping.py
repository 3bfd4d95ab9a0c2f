"""Shaping: how much each member's fitness weighs in the update."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ..errors import InvalidArgument, InvalidInput

Shaping = Callable[[Tensor], Tensor]
ShapingName = Literal["centered_rank", "z_score", "raw"]


def centered_rank(fitness: Tensor) -> Tensor:
    """Replace each fitness by its rank, from −½ for the worst member to ½ for the best.

    Members of equal fitness share the mean of their ranks. If all are equal, every weight is 0.

    Args:
        fitness: Finite fitness numbers, (members,).

    Returns:
        The weights of the members in the update, (members,).

    Example:
        >>> flipout.es.centered_rank(torch.tensor([3.0, 9.0, 1.0]))
        tensor([ 0.0000,  0.5000, -0.5000])
    """
    _, place, counts = fitness.unique(return_inverse=True, return_counts=True)
    rank = (counts.cumsum(0) - (counts.to(fitness) + 1) / 2)[place]
    return rank / max(len(fitness) - 1, 1) - 0.5 * (len(fitness) > 1)


def z_score(fitness: Tensor) -> Tensor:
    """Shift and scale the fitness to mean 0 and standard deviation 1.

    If all members are equal, every weight is 0.

    Args:
        fitness: Finite fitness numbers, (members,).

    Returns:
        The weights of the members in the update, (members,).

    Example:
        >>> flipout.es.z_score(torch.tensor([1.0, 3.0]))
        tensor([-1.,  1.])
    """
    centred = fitness - fitness.mean()
    if bool((fitness == fitness[0]).all()):
        return torch.zeros_like(fitness)
    centred = centred / centred.abs().max()  # squares of large numbers would overflow
    return centred / centred.square().mean().sqrt()


def raw(fitness: Tensor) -> Tensor:
    """Leave the fitness unchanged: the paper's update.

    Args:
        fitness: Finite fitness numbers, (members,).

    Returns:
        The same numbers, (members,).

    Example:
        >>> flipout.es.raw(torch.tensor([1.0, 3.0]))
        tensor([1., 3.])
    """
    return fitness


SHAPINGS: dict[str, Shaping] = {shaping.__name__: shaping for shaping in (centered_rank, z_score, raw)}
"""The shapings that `EvolutionStrategy(shaping=…)` accepts by name."""


def shaping_of(shaping: ShapingName | Shaping) -> Shaping:
    """Return the shaping of that name, or the function itself."""
    if callable(shaping):
        return shaping
    if shaping not in SHAPINGS:
        raise InvalidArgument(
            f"shaping={shaping!r}: expected one of {sorted(SHAPINGS)}, or a function from the fitness of n members, "
            "(n,), to their weights in the update, (n,)."
        )
    return SHAPINGS[shaping]


def shaped(shaping: Shaping, fitness: Tensor, is_kept: Tensor) -> Tensor:
    """Return the weights of all members, with 0 for those that are not kept."""
    kept = fitness if bool(is_kept.all()) else fitness[is_kept]
    weights = shaping(kept)
    if not isinstance(weights, Tensor) or weights.shape != kept.shape or not bool(weights.isfinite().all()):
        result = f"shape {tuple(weights.shape)}" if isinstance(weights, Tensor) else repr(type(weights))
        raise InvalidInput(
            f"The shaping {getattr(shaping, '__name__', shaping)!r} returned {result} for {len(kept)} fitness "
            "numbers; expected one finite number for each."
        )
    weights = weights.to(fitness)
    return weights if kept is fitness else torch.zeros_like(fitness).masked_scatter(is_kept, weights)
