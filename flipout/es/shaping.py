"""What a fitness counts for in the update. Each shaping maps the finite fitness numbers of a generation to weights."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import InvalidArgument, InvalidInput

Shaping = Callable[[Tensor], Tensor]


def centered_rank(fitness: Tensor) -> Tensor:
    """(members,): from −½ for the worst to ½ for the best; equals share the mean of their ranks: all equal, all 0."""
    _, place, counts = fitness.unique(return_inverse=True, return_counts=True)
    rank = (counts.cumsum(0) - (counts.to(fitness) + 1) / 2)[place]
    return rank / max(len(fitness) - 1, 1) - 0.5 * (len(fitness) > 1)


def z_score(fitness: Tensor) -> Tensor:
    """(members,): mean 0 and standard deviation 1; all equal are all 0."""
    centred = fitness - fitness.mean()
    if bool((fitness == fitness[0]).all()):
        return torch.zeros_like(fitness)
    centred = centred / centred.abs().max()  # squares of large numbers would overflow
    return centred / centred.square().mean().sqrt()


def raw(fitness: Tensor) -> Tensor:
    """(members,) as it is: the paper's update."""
    return fitness


SHAPINGS: dict[str, Shaping] = {shaping.__name__: shaping for shaping in (centered_rank, z_score, raw)}
"""The shapings that `EvolutionStrategy(shaping=…)` knows by name."""


def shaping_of(shaping: str | Shaping) -> Shaping:
    if callable(shaping):
        return shaping
    if shaping not in SHAPINGS:
        raise InvalidArgument(
            f"shaping={shaping!r}: expected one of {sorted(SHAPINGS)}, or a function from the fitness of (n,) members "
            "to their (n,) weights in the update."
        )
    return SHAPINGS[shaping]


def shaped(shaping: Shaping, fitness: Tensor, kept: Tensor) -> Tensor:
    """The weights of all members, 0 for those that are not kept."""
    some = fitness if bool(kept.all()) else fitness[kept]
    made = shaping(some)
    if not isinstance(made, Tensor) or made.shape != some.shape or not bool(made.isfinite().all()):
        given = f"shape {tuple(made.shape)}" if isinstance(made, Tensor) else repr(type(made))
        raise InvalidInput(
            f"The shaping {getattr(shaping, '__name__', shaping)!r} returned {given} for {len(some)} fitness "
            "numbers; expected one finite number for each."
        )
    return made.to(fitness) if some is fitness else torch.zeros_like(fitness).masked_scatter(kept, made.to(fitness))
