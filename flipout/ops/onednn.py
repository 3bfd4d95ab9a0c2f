"""Large matrix products on a CPU by oneDNN.

`F.linear` multiplies with MKL, which leaves AVX-512 unused on other vendors' processors. There oneDNN takes half the
time. torch has no public function for it; this one is what its own compiler calls.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from ..draws.bits import transformed

LARGE = 2**21  # multiplications from which on it is faster: a call takes 8 µs more, the first of a shape 400 µs
_PLAIN = (nn.Parameter, Tensor)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """x Wᵀ + b for a matrix x, where nothing is differentiated; None if oneDNN does not serve it."""
    outputs = weight.shape[0]
    if torch.is_grad_enabled() or outputs == 1 or x.numel() * outputs < LARGE or x.dim() != 2:
        return None
    product = _product()
    is_plain = type(x) is Tensor and type(weight) in _PLAIN and x.is_contiguous() and weight.is_contiguous()
    is_single = x.dtype == weight.dtype == torch.float32 and (bias is None or bias.dtype == torch.float32)
    if product is None or not is_plain or not is_single:
        return None
    if transformed() or torch.is_autocast_enabled("cpu") or not torch.backends.mkldnn.enabled:
        return None
    return product(x, weight, bias, "none", (), "")


@cache
def _product() -> Callable[..., Tensor] | None:
    has_op = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if not has_op or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return None
    return torch.ops.mkldnn._linear_pointwise.default
