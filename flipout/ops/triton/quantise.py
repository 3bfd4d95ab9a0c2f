"""Flipped, scaled and rounded to FP8 in one pass, and the transpose with it."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...backend import ADA, capability, register
from ...draws.bits import stream_name
from ...perturbation import Signs
from .base import INTERPRETED, index_type, side_by_side
from .launch import launch
from .signs import BLOCK
from .twice import negatives

_ROWS, _BLOCK, _TIMES = 64, 2048, 8
_COLUMNS = tl.constexpr(BLOCK)


@triton.jit
def _more(a, b):
    return tl.maximum(a, b)


@triton.jit(do_not_specialize=["positions", "first", "name"])
def _quantise(
    x,
    straight,
    turned,
    scale,
    seed,
    rows,
    positions,
    first: tl.int64,
    name: tl.int64,
    FEATURES: tl.constexpr,
    NEGATE: tl.constexpr,
    INDEX: tl.constexpr,
    ROWS: tl.constexpr,
):
    begin = tl.program_id(1) * _COLUMNS
    row, column = tl.program_id(0).to(INDEX) * ROWS + tl.arange(0, ROWS), begin.to(INDEX) + tl.arange(0, _COLUMNS)
    inside = (row < rows)[:, None] & (column < FEATURES)[None, :]
    value = tl.load(x + (row * FEATURES)[:, None] + column[None, :], mask=inside, other=0).to(tl.float32)
    value = value * tl.div_rn(1.0, tl.load(scale))
    if seed is not None:
        example = first + (row // positions).to(tl.int64)
        negative = negatives(example, begin, name, seed, _COLUMNS, True) != NEGATE
        value = tl.where(negative, -value, value)
    rounded = value.to(tl.float8e4nv)
    if straight is not None:
        tl.store(straight + (row * FEATURES)[:, None] + column[None, :], rounded, mask=inside)
    if turned is not None:
        tl.store(turned + (column * rows)[:, None] + row[None, :], rounded.T, mask=inside.T)


@triton.jit
def _largest(out, x, total, INDEX: tl.constexpr, BLOCK: tl.constexpr, TIMES: tl.constexpr):
    begin = tl.program_id(0).to(INDEX) * (BLOCK * TIMES)
    most = tl.full((BLOCK,), 0, tl.float32)
    for i in tl.static_range(TIMES):
        place = begin + i * BLOCK + tl.arange(0, BLOCK)
        size = tl.abs(tl.load(x + place, mask=place < total, other=0).to(tl.float32))
        most = tl.maximum(most, tl.where(size < float("inf"), size, 0))
    tl.atomic_max(out, tl.reduce(most, 0, _more), sem="relaxed")


def largest(x: Tensor) -> Tensor:
    """max |x| of what is finite, in single precision."""
    out = torch.zeros((), dtype=torch.float32, device=x.device)
    grid = (-(-x.numel() // (_BLOCK * _TIMES)),)
    launch(_largest, grid, out, x, x.numel(), INDEX=index_type(x.numel()), BLOCK=_BLOCK, TIMES=_TIMES)
    return out


def quantise(
    x: Tensor, scale: Tensor, whose: tuple[Signs, Tensor, int] | None, straight: bool, turned: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Q(x) and Q(x)ᵀ, where asked for, of a matrix whose rows are flipped if they have signs."""
    rows, features = x.shape
    signs, seed, over = (None, None, 0) if whose is None else whose
    name = 0 if signs is None else stream_name(signs.key, over)
    made = torch.empty(rows, features, dtype=torch.float8_e4m3fn, device=x.device) if straight else None
    transposed = torch.empty(features, rows, dtype=torch.float8_e4m3fn, device=x.device) if turned else None
    launch(
        _quantise,
        (-(-rows // _ROWS), -(-features // BLOCK)),
        x,
        made,
        transposed,
        scale,
        seed,
        rows,
        rows // signs.count if signs else 1,
        signs.first if signs else 0,
        name,
        FEATURES=features,
        NEGATE=int(signs is not None and signs.antithetic and over == 0),
        INDEX=index_type(x.numel()),
        ROWS=_ROWS,
        num_warps=4,
    )
    return made, transposed


def _fits(x: Tensor, signs: Signs | None) -> bool:
    whole = (signs is None or (signs.part is None and signs.count > 0)) and x.numel() > 0 and side_by_side(x, -1)
    # The interpreter rounds to FP8 in a way of its own. Of single precision the compiled kernel got transposes wrong.
    return whole and not INTERPRETED and x.dtype in (torch.bfloat16, torch.float16) and capability(x.device) >= ADA


def _all(x: Tensor) -> bool:
    return _fits(x, None)


register("quantise", quantise, _fits)
register("largest", largest, _all)
