"""Matrix products on a CPU by oneDNN, which torch's own recurrent layers use.

`F.linear` and `torch.mm` call MKL for fp32. On AMD processors with AVX-512, MKL reaches half of oneDNN's speed. A call
of oneDNN takes about 8 µs longer, so small products stay with MKL.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..draws.bits import is_transformed

_LEAST = 2**20  # multiplications; below, MKL is faster
_LEAST_BOUND = 2**21  # the same for a weight that many small products leave in the cache
_ops: Any = torch.ops.mkldnn
IS_BUILT = torch.backends.mkldnn.is_available() and all(
    hasattr(_ops, name) for name in ("_linear_pointwise", "_reorder_linear_weight")
)


_HAS_AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"  # without it MKL is as fast


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


def infer_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Return x Wᵀ + b for a matrix x, if nothing is differentiated and oneDNN serves it; else None."""
    outputs = weight.shape[0]
    if torch.is_grad_enabled() or outputs == 1 or x.dim() != 2 or not serves(x, x.numel() * outputs, _LEAST_BOUND):
        return None
    is_plain = type(x) is Tensor and type(weight) in (nn.Parameter, Tensor)
    is_plain = is_plain and x.is_contiguous() and weight.is_contiguous()
    is_single = weight.dtype == torch.float32 and (bias is None or bias.dtype == torch.float32)
    if not (is_plain and is_single and _HAS_AVX512) or is_transformed() or torch.is_autocast_enabled("cpu"):
        return None
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
