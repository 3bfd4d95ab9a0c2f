"""Rank-one flips: σ (s · x) r and a bias, with signs that are made in registers and never written."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..._perturbation import Signs
from ...backend import register_kernel
from ...draws.bits import stream_name
from .base import fits, has_adjacent_features
from .launching import launch
from .reductions import plus
from .signs import HALF, half_words

_HALVES = 64  # words of 32 signs that a program takes at a time, at most: 2,048 numbers, 16 for each of its threads
_PROGRAMS = 2048  # fewer do not fill a device of 132 multiprocessors
_HALF = tl.constexpr(HALF)


@triton.jit(do_not_specialize=["first", "s_name", "r_name", "bias_name", "positions"])
def _terms(
    out_ptr,
    x_ptr,
    spread_ptr,
    bias_ptr,
    bias_spread_ptr,
    seed_ptr,
    first: tl.int64,
    s_name: tl.int64,
    r_name: tl.int64,
    bias_name: tl.int64,
    positions,
    FEATURES: tl.constexpr,
    OUTPUTS: tl.constexpr,
    SPAN: tl.constexpr,
    NEGATE: tl.constexpr,
    IN_HALVES: tl.constexpr,
    OUT_HALVES: tl.constexpr,
):
    """out[row] = spread · (s · x[row]) · r + bias + bias_spread · b, with the signs s, r and b of the row's example.

    r and b are negated if NEGATE. x is (rows, FEATURES), out is (rows, OUTPUTS), and `positions` rows belong to one
    example. Both pointers of the bias may be None. One program writes SPAN outputs of a row, a multiple of those that
    it makes at a time. It computes the dot product for itself, so several programs of a row read x again.
    """
    row = tl.program_id(0)
    line_ptr, example = x_ptr + row.to(tl.int64) * FEATURES, first.to(tl.int64) + row // positions
    seed, bit = tl.load(seed_ptr), tl.arange(0, _HALF)[None, :]
    shift = bit.to(tl.uint32)
    total = tl.full((IN_HALVES, _HALF), 0, tl.float32)
    for begin in range(0, FEATURES, IN_HALVES * _HALF):
        half = begin // _HALF + tl.arange(0, IN_HALVES)
        feature = (half * _HALF)[:, None] + bit
        value = tl.load(line_ptr + feature, mask=feature < FEATURES, other=0).to(tl.float32)
        is_flipped = ((half_words(seed, s_name, example, half)[:, None] >> shift) & 1) != 0
        total += tl.where(is_flipped, -value, value)
    term = tl.reduce(tl.reduce(total, 1, plus), 0, plus) * tl.load(spread_ptr).to(tl.float32)
    out_line_ptr, span = out_ptr + row.to(tl.int64) * OUTPUTS, tl.program_id(1) * SPAN
    for begin in range(0, SPAN, OUT_HALVES * _HALF):
        half = (span + begin) // _HALF + tl.arange(0, OUT_HALVES)
        feature = (half * _HALF)[:, None] + bit
        is_there = feature < OUTPUTS
        is_flipped = ((half_words(seed, r_name, example, half)[:, None] >> shift) & 1) != NEGATE
        value = tl.where(is_flipped, -term, term)
        if bias_ptr is not None:
            value += tl.load(bias_ptr + feature, mask=is_there, other=0).to(tl.float32)
        if bias_spread_ptr is not None:
            spread = tl.load(bias_spread_ptr).to(tl.float32)
            is_negative = ((half_words(seed, bias_name, example, half)[:, None] >> shift) & 1) != NEGATE
            value += tl.where(is_negative, -spread, spread)
        tl.store(out_line_ptr + feature, value, mask=is_there)


def rank_one_terms(
    x: Tensor,
    outputs: int,
    signs: Signs,
    seed: Tensor,
    spread: Tensor,
    dims: tuple[int, int],
    bias: Tensor | None,
    bias_noise: tuple[int, Tensor] | None,
) -> Tensor:
    """Return spread (s · x) r + bias, (…, outputs).

    Args:
        x: The input, (…, features).
        outputs: Size of the last dimension of the result.
        signs: The signs of the weight.
        seed: Their seed.
        spread: The standard deviation of the weight, one number.
        dims: The dimensions of the weight that r and s run over, in this order.
        bias: The bias, (outputs,).
        bias_noise: The key and the standard deviation of the bias, if it has signs of its own.
    """
    features, (r_dim, s_dim) = x.shape[-1], dims
    out, rows = x.new_empty(*x.shape[:-1], outputs), x.numel() // features
    if not outputs:
        return out
    bias_key, bias_spread = (0, None) if bias_noise is None else bias_noise
    in_halves, out_halves = _halves(features), _halves(outputs)
    made_at_once = out_halves * HALF
    at_once = -(-outputs // made_at_once)
    spans = min(at_once, -(-_PROGRAMS // rows))
    span = -(-at_once // spans) * made_at_once
    launch(
        _terms,
        (rows, -(-outputs // span)),
        *(out, x, spread, None if bias is None else bias.contiguous(), bias_spread, seed, signs.first),
        *(stream_name(signs.key, s_dim), stream_name(signs.key, r_dim), stream_name(bias_key, 0)),
        rows // signs.count,
        FEATURES=features,
        OUTPUTS=outputs,
        SPAN=span,
        NEGATE=int(signs.antithetic),
        IN_HALVES=in_halves,
        OUT_HALVES=out_halves,
    )
    return out


def _halves(features: int) -> int:
    return int(min(triton.next_power_of_2(-(-features // HALF)), _HALVES))  # pyright: ignore[reportCallIssue]


def _fits(x: Tensor, signs: Signs, dim: int) -> bool:
    """Admit rows with adjacent features, under the signs of entire Parameters, since the kernel counts features from 0;
    below double precision, since it adds in single precision."""
    is_entire = signs.part is None and signs.count > 0 and x.numel() > 0 and x.dim() > 1 and dim == -1
    return is_entire and fits(x, x.dtype) and x.dtype != torch.float64 and has_adjacent_features(x, -1)


register_kernel("rank_one_terms", rank_one_terms, _fits)
