"""What the kernels have in common: how torch sees them, and whom they serve."""

from collections.abc import Callable
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton import knobs

from ...draws.bits import is_transformed

INTERPRETED: bool = knobs.runtime.interpret
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_NARROW = 2**30


def op(name: str, empty: Callable[..., Tensor], fill: Callable[..., None]) -> Callable[..., Tensor]:
    """A torch op: `empty(tensor, …)` makes its output and `fill(out, tensor, …)` launches the kernel.

    Dimensions in front of the tensor's own are a batch, so vmap needs no more than to put its dimension there.
    """

    def run(tensor: Tensor, *about: Any) -> Tensor:
        out = empty(tensor, *about)
        if out.numel():
            fill(out, tensor.contiguous(), *about)
        return out

    def batched(info: Any, in_dims: tuple, tensor: Tensor, *about: Any) -> tuple[Tensor, int]:
        return made(tensor.movedim(in_dims[0], 0), *about), 0

    schema = torch.library.infer_schema(empty, mutates_args=())
    made = torch.library.custom_op(f"flipout::{name}", run, mutates_args=(), schema=schema)
    made.register_fake(empty)
    made.register_vmap(batched)
    # The way through torch's dispatcher takes longer than a launch; only its transforms need it.
    return lambda tensor, *about: (made if is_transformed() else run)(tensor, *about)


def fits(tensor: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    return (tensor.is_cuda or INTERPRETED) and dtype in _FLOATS


def side_by_side(x: Tensor, dim: int) -> bool:
    """Whether memory has the features of one place after each other: rows, or channels last. Numbers that torch only
    negates when it reads them are not there yet."""
    return (x if dim == -1 else x.movedim(dim, -1)).is_contiguous() and not x.is_neg()


def real_type(*dtypes: torch.dtype) -> tl.dtype:
    """What numbers of these dtypes are computed in."""
    return tl.float64 if torch.float64 in dtypes else tl.float32


def index_type(places: int) -> tl.dtype:
    """Of as many places, with room above for the threads past the end."""
    return tl.int32 if places < _NARROW else tl.int64
