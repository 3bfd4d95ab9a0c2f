"""Check the fitness numbers that a user's function returns."""

import warnings
from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidInput


def checked_fitness(fitness: Any, count: int, source: str) -> Tensor:
    """Return the fitness of `count` members as (count,) in double precision, on the CPU.

    `source` is the call that gave the numbers, for the message.
    """
    try:
        numbers = torch.as_tensor(fitness).detach()
        numbers = numbers if numbers.is_complex() else numbers.to("cpu", torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InvalidInput(f"{source}: got {type(fitness).__name__}; expected {count} numbers.") from error
    if numbers.is_complex():
        raise InvalidInput(
            f"{source}: got complex numbers; expected {count} real ones, since members are compared. Return .real or "
            ".abs() of them."
        )
    if numbers.shape != (count,):
        has_more = numbers.dim() > 1
        fix = "Average over what each member was tried on: .mean(1)." if has_more else "Return one number per member."
        raise InvalidInput(
            f"{source}: got shape {tuple(numbers.shape)}; expected ({count},), one number for each member. {fix}"
        )
    return numbers


_FEW = 16  # fewer members may agree by chance, for example in their accuracy on a few questions


def warn_if_equal(fitness: Tensor, std: float) -> None:
    """Warn if all members of the first generation have the same fitness, unless they are few."""
    if len(fitness) >= _FEW and bool((fitness == fitness[0]).all()):
        warnings.warn(
            f"All {len(fitness)} members have fitness {fitness[0].item():.4g}: there is no direction to go in. Look "
            "whether the fitness calls the population, population(x), and not the model, and whether it tells networks "
            f"apart that differ by std={std:g}: if not, use a smoother fitness, more examples, or a larger std.",
            RuntimeWarning,
            stacklevel=3,
        )
