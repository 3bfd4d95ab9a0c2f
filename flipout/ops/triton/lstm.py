"""The LSTM of flipout by kernels: for a few sequences one launch each way, for many a product and a launch a step.
A few sequences of one weight have the same without ΔŴ and signs.

A step's product is a Bᵀ + flip ∘ (a′ B′ᵀ) of plain and flipped operands: [h, h ∘ s] with [W̄, ΔŴ] forward, and
[dg, dg ∘ r] with their transposes backward. Rows are padded with zeros, so that every product is aligned.
"""
# Triton reads a kernel's arguments in its own way.
# pyright: reportArgumentType=false, reportCallIssue=false

from functools import cache
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from ..._batched_gradients import one_at_a_time
from ...backend import register
from ..base import refuse_double_backward
from ..lstm import WRITTEN_OUT
from . import gates as pointwise
from . import scan
from .base import INTERPRETED, index_type
from .launch import launch

_FEW = 64  # sequences
# A program's tile: columns, bytes of a row at a time, loads ahead; and the most programs that share one sum.
_COLUMNS, _BYTES, _STAGES, _SHARES = 64, 128, 4, 12
_AMPERE = 8  # the first generation with tensor cores for all these dtypes
_PAD = 64  # numbers
_ELEMENTS = 512  # of one program that only multiplies and adds
_SIDE = 64  # of one that copies a tile


class Tile(NamedTuple):
    """Rows, columns and summands that one program takes at a time, its loads ahead, and programs that share a sum."""

    rows: int
    columns: int
    depth: int
    stages: int
    split: int

    def length(self, summands: int) -> int:
        """Of one share of a sum, with zeros at its end."""
        return -(-summands // (self.split * self.depth)) * self.depth


class FusedLSTM(torch.autograd.Function):
    """What `ops.lstm.FlippedLSTM` computes, of its arguments. It keeps the sequences of h, c and gates for backward."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
        with torch.cuda.device_of(given[0]):
            return FusedLSTM._forward(ctx, *given)

    @staticmethod
    def _forward(
        ctx: Any,
        x: Tensor,
        h: Tensor,
        c: Tensor,
        mean: Tensor,
        delta: Tensor | None,
        bias: Tensor | None,
        r: Tensor | None,
        s: Tensor | None,
        reverse: bool,
        alive: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.biased = bias is not None
        ctx.how = {"REVERSE": reverse, "ALIVE": alive is not None, "FLIPPED": delta is not None}
        (count, steps, _), width = x.shape, h.shape[-1]
        x = x if x.stride(-1) == 1 else x.contiguous()
        signs = x.new_empty(count, width, dtype=torch.uint8)
        if r is not None and s is not None:
            launch(
                pointwise.pack,
                (-(-signs.numel() // _ELEMENTS),),
                signs,
                r.contiguous(),
                s.contiguous(),
                signs.numel(),
                width,
                ELEMENTS=_ELEMENTS,
                INDEX=index_type(r.numel()),
            )
        gates, y = x.new_empty(steps, count, 4 * width), x.new_empty(steps, count, width)
        cells = c.new_empty(steps + 1, *c.shape)
        cells[0] = c
        tile = _tile(count, 4 * width, x)
        pairs = x.new_zeros(2, 2, count, tile.split * tile.length(width) if tile else _padded(width))
        pairs[0, 0, :, :width], pairs[0, 1, :, :width] = h, h if s is None else h * s
        alive = signs if alive is None else alive.flatten(1).to(torch.uint8).contiguous()
        given, made = (x, x if bias is None else bias.contiguous(), alive, signs), (pairs, gates, cells, y)
        how = {**ctx.how, "BIAS": ctx.biased}
        if tile is None:
            assert delta is not None
            _forward_many(given, mean, delta, made, how)
        else:
            _forward_few(given, mean, delta, made, how, tile)
        ctx.save_for_backward(h, y, cells, gates, mean, delta, signs, alive)
        return y, pairs[steps % 2, 0, :, :width].clone(), cells[-1].clone()

    @staticmethod
    @one_at_a_time
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward(*WRITTEN_OUT)
        with torch.autocast(grads[0].device.type, enabled=False), torch.cuda.device_of(grads[0]):
            return FusedLSTM._backward(ctx, *grads)

    @staticmethod
    def _backward(ctx: Any, dy: Tensor, dh: Tensor, dc: Tensor) -> tuple[Tensor | None, ...]:
        h, y, cells, gates, mean, delta, signs, alive = ctx.saved_tensors
        steps, count, width = y.shape
        dy = dy if dy.stride(-1) == 1 else dy.contiguous()
        dcells = dc.to(cells.dtype, memory_format=torch.contiguous_format, copy=True)
        tile = _tile(count, width, y)
        long = tile.split * tile.length(4 * width) if tile else _padded(4 * width)
        pairs = y.new_empty(1 + ctx.how["FLIPPED"], steps, count, long)
        pairs[..., 4 * width :] = 0
        rest = torch.zeros_like(dcells) if ctx.how["ALIVE"] else dcells
        given = (alive, rest, dy, dcells, gates, cells, signs, pairs)
        _turn(dh.contiguous(), given, steps - 1, ctx.how, last=True)
        dgates, needs = pairs[0, ..., : 4 * width], ctx.needs_input_grad
        if tile is None:
            dh, sums = _backward_many(given, mean, delta, ctx.how), dgates
        else:
            sums = dgates[-1].to(torch.float32, copy=True).contiguous()
            dh = _backward_few((*given, sums), mean, delta, ctx.how, tile)
        dh = dh + rest if ctx.how["ALIVE"] else dh
        reverse = ctx.how["REVERSE"]
        dx = (dgates.flip(0) if reverse else dgates).transpose(0, 1)
        dmean, ddelta = _weight_gradients(pairs, y, h, signs, needs[3:5], ctx.how)
        dbias = sums.flatten(0, -2).sum(0).to(y.dtype) if ctx.biased and needs[5] else None
        return dx, dh.to(h.dtype), dcells.to(dc.dtype), dmean, ddelta, dbias, None, None, None, None


def _forward_few(
    given: tuple[Tensor, ...],
    mean: Tensor,
    delta: Tensor | None,
    made: tuple[Tensor, ...],
    how: dict[str, bool],
    tile: Tile,
) -> None:
    x, pairs, gates = given[0], made[0], made[1]
    (count, steps, _), width = x.shape, mean.shape[1]
    weights = _filled(mean, delta, 4 * width, pairs.shape[-1])
    parts = x.new_empty(tile.split, count, 4 * width, dtype=torch.float32)
    grid = (-(-4 * width // tile.columns), tile.split)
    for begin, end, multiply, gate in _launches(steps):
        launch(
            scan.forward,
            grid,
            *given,
            weights,
            *made,
            parts,
            _counter(x),
            begin,
            end,
            steps,
            count,
            width,
            *x.stride()[:2],
            weights.stride(0),
            MULTIPLY=multiply,
            GATE=gate,
            **how,
            **_about(tile, grid, count, width, weights, gates),
        )


def _backward_few(
    given: tuple[Tensor, ...], mean: Tensor, delta: Tensor | None, how: dict[str, bool], tile: Tile
) -> Tensor:
    _, _, dy, *_, pairs, _ = given
    steps, count, width = dy.shape
    weights = _filled(mean, delta, width, pairs.shape[-1], transposed=True)
    parts = dy.new_empty(tile.split, count, width, dtype=torch.float32)
    grid = (-(-width // tile.columns), tile.split)
    for begin, end, multiply, gate in _launches(steps):
        launch(
            scan.backward,
            grid,
            *given,
            weights,
            parts,
            _counter(dy),
            steps - begin,
            steps - end,
            steps,
            count,
            width,
            *dy.stride()[:2],
            pairs.stride(0),
            weights.stride(0),
            MULTIPLY=multiply,
            GATE=gate,
            **how,
            **_about(tile, grid, count, width, weights, pairs),
        )
    return parts.sum(0)


def _forward_many(
    given: tuple[Tensor, ...], mean: Tensor, delta: Tensor, made: tuple[Tensor, ...], how: dict[str, bool]
) -> None:
    x, *_, signs = given
    (count, steps, _), width = x.shape, mean.shape[1]
    weights = _filled(mean, delta, _padded(4 * width), _padded(width))
    products, pairs = x.new_empty(2, count, weights.shape[1]), made[0]
    for t in range(steps):
        torch.bmm(pairs[t % 2], weights.mT, out=products)
        launch(
            pointwise.step,
            (-(-count * width // _ELEMENTS),),
            *given[:3],
            products,
            signs,
            *made,
            t,
            steps - 1 - t if how["REVERSE"] else t,
            count,
            width,
            *x.stride()[:2],
            weights.shape[-1],
            products.shape[-1],
            BIAS=how["BIAS"],
            ALIVE=how["ALIVE"],
            INDEX=index_type(made[1].numel()),
            ELEMENTS=_ELEMENTS,
        )


def _backward_many(given: tuple[Tensor, ...], mean: Tensor, delta: Tensor, how: dict[str, bool]) -> Tensor:
    _, _, dy, *_, signs, pairs = given
    steps, count, width = dy.shape
    weights = _filled(mean, delta, pairs.shape[-1], _padded(width))
    products = pairs.new_empty(2, count, weights.shape[-1])
    for t in reversed(range(steps)):
        torch.bmm(pairs[:, t], weights, out=products)
        if t:
            _turn(products, given, t - 1, how, last=False)
    straight, turned = products[..., :width].float()
    return straight + turned * (1 - 2 * (signs >> pointwise.S.value & 1).float())


def _turn(left: Tensor, given: tuple[Tensor, ...], t: int, how: dict[str, bool], last: bool) -> None:
    _, _, dy, *_, pairs = given
    steps, count, width = dy.shape
    launch(
        pointwise.turn,
        (-(-count * width // _ELEMENTS),),
        left,
        *given,
        t,
        steps - 1 - t if how["REVERSE"] else t,
        count,
        width,
        *dy.stride()[:2],
        _padded(width),
        pairs.shape[-1],
        pairs.stride(0),
        LAST=last,
        FLIPPED=how["FLIPPED"],
        ALIVE=how["ALIVE"],
        INDEX=index_type(pairs.numel()),
        ELEMENTS=_ELEMENTS,
    )


def _weight_gradients(
    pairs: Tensor, y: Tensor, h: Tensor, signs: Tensor, needs: tuple[bool, bool], how: dict[str, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Σ dg hᵀ and Σ (dg ∘ r)(h ∘ s)ᵀ over all steps and sequences."""
    if not any(needs):
        return None, None
    steps, count, width = y.shape
    before = y.new_empty(len(pairs), steps * count, _padded(width))
    total = before[0].numel()
    launch(
        pointwise.befores,
        (-(-total // _ELEMENTS),),
        before,
        y,
        h.contiguous(),
        signs,
        total,
        count * width,
        width,
        before.shape[-1],
        before.stride(0),
        FLIPPED=how["FLIPPED"],
        REVERSE=how["REVERSE"],
        INDEX=index_type(before.numel()),
        ELEMENTS=_ELEMENTS,
    )
    grads = pairs.flatten(1, 2)[..., : 4 * width].mT
    before = before[..., : width - width % -(16 // y.itemsize)]  # no more than an aligned row needs
    if all(needs):
        made = torch.bmm(grads, before)
        return made[0, :, :width], made[1, :, :width]
    which = needs.index(True)
    made = torch.mm(grads[which], before[which])[:, :width]
    return (made, None) if which == 0 else (None, made)


def _padded(length: int) -> int:
    return -(-length // _PAD) * _PAD


def _filled(mean: Tensor, delta: Tensor | None, rows: int, columns: int, transposed: bool = False) -> Tensor:
    """W̄ and ΔŴ, or their transposes, one after the other, filled up with zeros."""
    weights = mean.new_empty(1 if delta is None else 2, rows, columns)
    launch(
        pointwise.fill,
        (-(-columns // _SIDE), -(-rows // _SIDE), len(weights)),
        weights,
        mean.contiguous(),
        (mean if delta is None else delta).contiguous(),
        *(reversed(mean.shape) if transposed else mean.shape),
        rows,
        columns,
        TRANSPOSED=transposed,
        INDEX=index_type(weights.numel()),
        SIDE=_SIDE,
    )
    return weights


def _launches(steps: int) -> list[tuple[int, int, bool, bool]]:
    """From and to which step, and whether to multiply and to gate: one launch for all, but the interpreter's programs
    run one after the other and cannot meet."""
    if not INTERPRETED:
        return [(0, steps, True, True)]
    return [(t, t + 1, multiply, not multiply) for t in range(steps) for multiply in (True, False)]


def _counter(like: Tensor) -> Tensor:
    return torch.zeros((), dtype=torch.int32, device=like.device)


def _about(
    tile: Tile, grid: tuple[int, int], count: int, width: int, weights: Tensor, largest: Tensor
) -> dict[str, Any]:
    matmul = torch.backends.cuda.matmul
    rounded = getattr(matmul, "fp32_precision", None) == "tf32" or matmul.allow_tf32
    at_once = {} if INTERPRETED else {"launch_cooperative_grid": True}
    return {
        "SPLIT": tile.split,
        "LENGTH": weights.shape[-1] // tile.split,
        "PRECISION": "tf32" if rounded else "ieee",
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "DEPTH": tile.depth,
        "SHARE": triton.next_power_of_2(-(-count * width // (grid[0] * grid[1]))),
        "INDEX": index_type(largest.numel()),
        "num_stages": tile.stages,
        **at_once,
    }


def _tile(count: int, columns: int, like: Tensor) -> Tile | None:
    """For a product that leaves so many columns; None where the device cannot hold all tiles at once."""
    processors, memory = (8, 2**18) if INTERPRETED else _device(like.device)[:2]
    blocks, rows = -(-columns // _COLUMNS), max(16, triton.next_power_of_2(count))
    stages = min(_STAGES, memory // (2 * (rows + _COLUMNS) * _BYTES))
    if count > _FEW or blocks > processors or stages < 2:
        return None
    return Tile(rows, _COLUMNS, _BYTES // like.itemsize, stages, min(processors // blocks, _SHARES))


@cache
def _device(device: torch.device) -> tuple[int, int, int]:
    """Processors, the shared memory of one of them, and the generation."""
    found = torch.cuda.get_device_properties(device)
    return found.multi_processor_count, found.shared_memory_per_block_optin, found.major


def _fits(x: Tensor, dtype: torch.dtype) -> bool:
    if dtype not in (torch.float32, torch.bfloat16, torch.float16) or not x.numel():
        return False
    return INTERPRETED or (x.is_cuda and torch.version.hip is None and _device(x.device)[2] >= _AMPERE)


def _few_fit(x: Tensor, dtype: torch.dtype, sequences: int, rows: int) -> bool:
    return _fits(x, dtype) and _tile(sequences, rows, x) is not None


def _of_one_weight(
    x: Tensor, h: Tensor, c: Tensor, weight: Tensor, bias: Tensor | None, reverse: bool, alive: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    return FusedLSTM.apply(x, h, c, weight, None, bias, None, None, reverse, alive)


register("lstm", FusedLSTM.apply, _fits)
register("lstm of one weight", _of_one_weight, _few_fit)
