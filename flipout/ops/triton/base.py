"""What the kernels share: how torch sees them, which tensors they take, and the types they compute in."""

from collections.abc import Callable
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from ...draws.bits import is_transformed
from .internals import INTERPRETED

__all__ = ["INTERPRETED", "fits", "has_adjacent_features", "index_type", "op", "real_type"]

_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_INT32_PLACES = 2**30


def op(name: str, empty: Callable[..., Tensor], fill: Callable[..., None]) -> Callable[..., Tensor]:
    """Make a torch op: `empty(tensor, …)` allocates its output, and `fill(out, tensor, …)` launches the kernel.

    Dimensions in front of the tensor's own are a batch, so that vmap only has to move its dimension there.
    """

    def run(tensor: Tensor, *options: Any) -> Tensor:
        out = empty(tensor, *options)
        if out.numel():
            fill(out, tensor.contiguous(), *options)
        return out

    def batched(info: Any, in_dims: tuple, tensor: Tensor, *options: Any) -> tuple[Tensor, int]:
        return torch_op(tensor.movedim(in_dims[0], 0), *options), 0

    schema = torch.library.infer_schema(empty, mutates_args=())
    torch_op = torch.library.custom_op(f"flipout::{name}", run, mutates_args=(), schema=schema)
    torch_op.register_fake(empty)
    torch_op.register_vmap(batched)
    # torch's dispatcher takes longer than a launch, and only its transforms need it.
    return lambda tensor, *options: (torch_op if is_transformed() else run)(tensor, *options)


def fits(tensor: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Admit CUDA tensors, and any in the interpreter, for a `dtype` of 16, 32 or 64 bits: the kernels know no other."""
    return (tensor.is_cuda or INTERPRETED) and dtype in _FLOATS


def has_adjacent_features(x: Tensor, dim: int) -> bool:
    """Return True if the features in `dim` are adjacent in memory, as in rows or in channels_last.

    Not if torch's negative bit is set: torch negates such numbers when it reads them, and a kernel would not know.
    """
    return (x if dim == -1 else x.movedim(dim, -1)).is_contiguous() and not x.is_neg()


def real_type(*dtypes: torch.dtype) -> tl.dtype:
    """Return the type in which numbers of these dtypes are computed."""
    return tl.float64 if torch.float64 in dtypes else tl.float32


def index_type(places: int) -> tl.dtype:
    """Return the type that indexes this many places, with room above for the threads past the end."""
    return tl.int32 if places < _INT32_PLACES else tl.int64
