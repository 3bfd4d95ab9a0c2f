"""Which prompts a generation is evaluated on, and how many members at a time."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from ..._arguments import whole_number as whole_number
from ...errors import InvalidArgument
from .._population import Population


def checked_batch(batch: int | None, count: int, of: str) -> int:
    """Return the number of prompts of a generation: all of them if `batch` is None."""
    if not count:
        raise InvalidArgument(f"{of}: no prompts; expected at least one.")
    batch = count if batch is None else whole_number("batch", batch, 1, of=of)
    if batch > count:
        raise InvalidArgument(f"{of}(batch={batch}): there are {count} prompts. Use batch={count}, or None for all.")
    return batch


def drawn_prompts(population: Population, count: int, batch: int) -> list[int]:
    """Return the prompts of this generation: the same for all members, in every chunk and process."""
    if batch == count:
        return list(range(count))
    return torch.randperm(count, generator=population.generator())[:batch].tolist()


def chunks(population: Population, members: int | None) -> Iterator[Population]:
    """Yield the population, `members` members at a time. The last chunk may have fewer."""
    members = population.size if members is None else members
    for first in range(0, population.size, members):
        size = min(members, population.size - first)
        yield replace(population, first=population.first + first, size=size)


def checked_members(members: Any, of: str) -> int | None:
    """Return the size of a chunk of members."""
    return None if members is None else whole_number("members", members, 1, of=of)
