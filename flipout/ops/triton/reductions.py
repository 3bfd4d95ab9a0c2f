"""What tl.reduce combines with.

tl.sum and tl.max do the same on a device. In the interpreter they fail if Triton was imported before TRITON_INTERPRET
was set, as in the tests: Triton's own functions are then compiled ones.
"""

import triton
import triton.language as tl


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)
