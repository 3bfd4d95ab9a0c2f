"""Matrix products on a CPU by oneDNN, which torch's own recurrent layers use.

`F.linear` and `torch.mm` call MKL for fp32. On AMD processors with AVX-512, MKL reaches half of oneDNN's speed. A call
of oneDNN takes about 8 µs longer, so small products stay with MKL.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_LEAST = 2**20  # multiplications; below, MKL is faster
_LEAST_BOUND = 2**21  # the same for a weight that many small products leave in the cache
_ops: Any = torch.ops.mkldnn
IS_BUILT = torch.backends.mkldnn.is_available() and all(
    hasattr(_ops, name) for name in ("_linear_pointwise", "_reorder_linear_weight")
)


def serves(tensor: Tensor, multiplications: int, least: int = _LEAST) -> bool:
    """Return True if oneDNN computes a product of this tensor that takes so many multiplications."""
    if multiplications < least or not IS_BUILT or not torch.backends.mkldnn.enabled:  # pyright: ignore[reportAttributeAccessIssue]
        return False
    return tensor.dtype == torch.float32 and tensor.is_cpu


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b. It has no gradient."""
    if not serves(x, x.numel() * weight.shape[0]):
        return F.linear(x, weight, bias)
    return _ops._linear_pointwise.default(x, weight, bias, "none", [], "")


def outer_sum(left: Tensor, right: Tensor) -> Tensor:
    """Return Σ left rightᵀ over all rows: the gradient of a weight, from those of its outputs and from its inputs."""
    left, right = left.flatten(0, -2), right.flatten(0, -2)
    if not serves(left, left.numel() * right.shape[1]):
        return left.T @ right
    return linear(right.T, left.T).T  # oneDNN copies its first argument, here the smaller one


def bind(weight: Tensor, rows: int) -> tuple[Callable[[Tensor, Tensor], Any], Callable[[Tensor, Tensor], Any]]:
    """Return two functions of (x, out) for many x of `rows` rows: out[:] = x Wᵀ, and out += x Wᵀ."""
    if not serves(weight, rows * weight.numel(), _LEAST_BOUND):
        turned = weight.T
        return lambda x, out: torch.mm(x, turned, out=out), lambda x, out: out.addmm_(x, turned)
    packed, multiply = _ops._reorder_linear_weight(weight.contiguous(), rows), _ops._linear_pointwise.default
    return (
        lambda x, out: out.copy_(multiply(x, packed, None, "none", [], "")),
        lambda x, out: out.add_(multiply(x, packed, None, "none", [], "")),
    )
