"""The product of two tiles, on a device and in Triton's interpreter."""
# pyright: reportInvalidTypeForm=false

import triton
import triton.language as tl

from .base import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)


@triton.jit
def dot(a, b, total, PRECISION: tl.constexpr):
    """Return total + a b."""
    if _INTERPRETED:  # the interpreter would multiply the bits of bfloat16 as integers
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, total, input_precision=PRECISION)
