"""Where the streams of noise start, for all bases of a Parameter in one launch."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

import triton
import triton.language as tl
from torch import Tensor

from ...backend import register_kernel
from ...draws.noise import Origin
from .base import fits, index_type, op
from .launching import launch
from .noise import STEP, splitmix, stream_start

_BLOCK = 512  # starting points in one program


@triton.jit(do_not_specialize=["total", "count", "first", "fold", "name"], do_not_specialize_on_alignment=["seed_ptr"])
def _starts(
    out_ptr,
    seed_ptr,
    total: tl.int64,
    count: tl.int64,
    first: tl.int64,
    fold: tl.int64,
    name: tl.int64,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out[k, b] = mix(seed[k] + fold) + name + mix((first + b) · γ).

    out is (seeds, count), `total` numbers in all. One program makes BLOCK of them.
    """
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    is_inside = i < total
    row, column = i // count.to(INDEX), i % count.to(INDEX)
    base = splitmix((first.to(tl.int64) + column).to(tl.uint64) * STEP)
    z = stream_start(tl.load(seed_ptr + row, mask=is_inside, other=0), fold, name) + base
    tl.store(out_ptr + i, z.to(tl.int64), mask=is_inside)


def _empty_starts(seed: Tensor, key: int, field: int, first: int, count: int, fold: int) -> Tensor:
    return seed.new_empty((*seed.shape, count))


def _fill_starts(out: Tensor, seed: Tensor, key: int, field: int, first: int, count: int, fold: int) -> None:
    total, (before, name) = out.numel(), Origin(key, field, 0, fold).words()
    launch(
        _starts,
        (-(-total // _BLOCK),),
        out,
        seed,
        total,
        count,
        first,
        before,
        name,
        INDEX=index_type(out.numel()),
        BLOCK=_BLOCK,
    )


register_kernel("stream_starts", op("stream_starts", _empty_starts, _fill_starts), fits)
