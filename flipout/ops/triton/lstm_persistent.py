"""All steps of an LSTM for few sequences in one launch: the parts that the forward and backward kernels share.

In each step every program first makes its part of the sums of a product's tile (MULTIPLY), and then adds up the parts
of all programs for its share of the state (GATE). Programs meet in between, so all of them must run at once. The
weights stay in the device's cache, and c, dc and signs in registers. What programs exchange is read past their own
caches.
"""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportCallIssue=false

from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .base import INTERPRETED, index_type
from .dot_product import dot

_LARGEST_COUNT = 64  # sequences
_BLOCK_N = 64  # columns of a tile
_ROW_BYTES = 128  # of a row, loaded at a time
_STAGES = 4  # loads ahead
_LARGEST_SPLIT = 12  # programs that share one sum, at most


@triton.jit
def product_tile(
    a_ptr,
    a_pair_stride,
    b_ptr,
    b_pair_stride,
    is_row,
    signs,
    FLIPPED: tl.constexpr,
    LENGTH: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Return a Bᵀ for one tile, plus signs ∘ (a′ B′ᵀ) if FLIPPED.

    The pointers are to the first tiles of a and B; a′ and B′ lie a pair stride behind them.
    """
    plain = tl.full((BLOCK_N, BLOCK_M), 0, tl.float32)
    flipped = tl.full((BLOCK_N, BLOCK_M), 0, tl.float32)
    for k in range(0, LENGTH, BLOCK_K):
        a = tl.load(a_ptr + k, mask=is_row, other=0, cache_modifier=".cg")
        plain = dot(tl.load(b_ptr + k), a.T, plain, PRECISION)
        if FLIPPED:
            a = tl.load(a_ptr + a_pair_stride + k, mask=is_row, other=0, cache_modifier=".cg")
            flipped = dot(tl.load(b_ptr + b_pair_stride + k), a.T, flipped, PRECISION)
    if FLIPPED:
        return plain.T + signs * flipped.T
    else:
        return plain.T


@triton.jit
def wait_for_all(counter_ptr, arrivals):
    """Wait until all programs have reached this point. What they wrote before can then be read."""
    tl.debug_barrier()
    tl.atomic_add(counter_ptr, 1, sem="release")
    while tl.atomic_add(counter_ptr, 0, sem="acquire") < arrivals:
        pass
    tl.debug_barrier()


class PersistentTile(NamedTuple):
    """Rows, columns and summands that one program takes at a time, its loads ahead, and programs that share a sum."""

    block_m: int
    block_n: int
    block_k: int
    stages: int
    split: int

    def part_length(self, summands: int) -> int:
        """Return the summands of one program's part of a sum, with zeros at its end."""
        return -(-summands // (self.split * self.block_k)) * self.block_k


def persistent_tile(count: int, columns: int, like: Tensor) -> PersistentTile | None:
    """Return the tile for a product of `count` rows and `columns` columns, or None if the device cannot hold all
    tiles at once."""
    processors, memory = (8, 2**18) if INTERPRETED else device_limits(like.device)[:2]
    blocks, rows = -(-columns // _BLOCK_N), max(16, triton.next_power_of_2(count))
    stages = min(_STAGES, memory // (2 * (rows + _BLOCK_N) * _ROW_BYTES))
    if count > _LARGEST_COUNT or blocks > processors or stages < 2:
        return None
    return PersistentTile(
        rows, _BLOCK_N, _ROW_BYTES // like.itemsize, stages, min(processors // blocks, _LARGEST_SPLIT)
    )


def launch_spans(steps: int) -> list[tuple[int, int, bool, bool]]:
    """Return the launches: their first step, the step after their last, and whether they multiply and gate.

    A device does everything in one launch. The interpreter's programs run one after the other and cannot meet, so it
    needs two launches for each step.
    """
    if not INTERPRETED:
        return [(0, steps, True, True)]
    return [(t, t + 1, multiply, not multiply) for t in range(steps) for multiply in (True, False)]


def zero_counter(like: Tensor) -> Tensor:
    return torch.zeros((), dtype=torch.int32, device=like.device)


def tile_options(
    tile: PersistentTile, grid: tuple[int, int], count: int, width: int, weights: Tensor, largest_tensor: Tensor
) -> dict[str, Any]:
    """Return the constants and launch options that the tile decides."""
    matmul = torch.backends.cuda.matmul
    is_rounded = getattr(matmul, "fp32_precision", None) == "tf32" or matmul.allow_tf32
    cooperative = {} if INTERPRETED else {"launch_cooperative_grid": True}
    return {
        "SPLIT": tile.split,
        "LENGTH": weights.shape[-1] // tile.split,
        "PRECISION": "tf32" if is_rounded else "ieee",
        "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n,
        "BLOCK_K": tile.block_k,
        "SHARE": triton.next_power_of_2(-(-count * width // (grid[0] * grid[1]))),
        "INDEX": index_type(largest_tensor.numel()),
        "num_stages": tile.stages,
        **cooperative,
    }


@cache
def device_limits(device: torch.device) -> tuple[int, int, int]:
    """Return the number of processors, the shared memory of one of them, and the generation."""
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, properties.shared_memory_per_block_optin, properties.major
