"""The bases of flipout: which ΔŴ each example of a batch uses, where groups of examples share one."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._perturbation import Perturbation
from ..backend import chosen
from ..draws.bits import is_transformed
from ..ops.base import Op


def bases_of(p: Perturbation, group: int | None) -> tuple[int, int, int]:
    """Return the first base of these examples, the number of bases, and the group size (0 if all share one base).

    A group of the draw overrides the `group` of the scheme.
    """
    group = p.draw.group or group or 0
    if not group or not p.examples:
        return 0, 1, 0
    first = p.first // group
    return first, (p.first + p.examples - 1) // group - first + 1, group


def delta_of_each_example(p: Perturbation, group: int | None) -> Tensor:
    """Return the ΔŴ of each example, of shape (examples, *shape), or (1, *shape) if all share one."""
    first, count, group = bases_of(p, group)
    deltas = p.deltas(first, count)
    if count == 1:
        return deltas
    if p.examples == count * group:  # whole groups
        return deltas.repeat_interleave(group, 0)
    index = torch.arange(p.first, p.first + p.examples, device=deltas.device) // group - first
    return deltas[index]


def missing_rows(p: Perturbation, bases: tuple[int, int, int]) -> tuple[int, int]:
    """Return the rows that the first group lacks before these examples, and the last group after them."""
    first, count, group = bases
    rows = p.draw.rows
    return (p.first - first * group) * rows, ((first + count) * group - p.first - p.examples) * rows


def pad_rows(x: Tensor, missing: tuple[int, int]) -> Tensor:
    """Add rows of zeros, so that the first and the last group are complete."""
    return F.pad(x, (*[0, 0] * (x.dim() - 1), *missing)) if missing[0] or missing[1] else x


def group_kernel(
    name: str, tensor: Tensor, p: Perturbation, group: int | None, op: Op | None, rows: int
) -> tuple[Any, tuple[Tensor, Tensor, int, int]] | None:
    """Return a kernel that serves several bases, and its arguments; None if there is no such kernel.

    Returns:
        The kernel, and a tuple: starts of the noise of each base, the spread, rows of a group, and the rows that the
        first group lacks.
    """
    first, count, group = bases_of(p, group)
    if count == 1 or is_transformed():
        return None
    kernel = chosen(name, tensor, p.dtype, op, p.parameter.shape, group * rows, required=False)
    starts = None if kernel is None else p.starts(first, count)
    if starts is None:
        return None
    return kernel, (starts, p.spread, group * rows, (p.first - first * group) * rows)
