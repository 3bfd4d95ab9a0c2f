"""What the kernels of paired noise and sign noise share: the words of a stream, and their noise times its spread."""
# Triton reads a kernel's annotations in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false
# pyright: reportAttributeAccessIssue=false

import triton
import triton.language as tl

from .noise import STEP, softplus, softplus_slope, splitmix, stream_start

NUMBERS = ["origin", "fold", "base", "total", "size"]  # what neither kernel specialises on


@triton.jit
def stream_word(start_ptr, row, column, origin, is_inside, fold, base, ALONE: tl.constexpr, SEEDED: tl.constexpr):
    """Return word `column` of the stream that starts at start[row].

    ALONE means that there is only one stream. SEEDED means that start[0] is a seed, of which the start is made here.
    """
    if ALONE:
        z = tl.load(start_ptr).to(tl.uint64)
        if SEEDED:
            z = stream_start(z, fold, base)
    else:
        z = tl.load(start_ptr + row, mask=is_inside, other=0).to(tl.uint64)
    return splitmix(z + origin.to(tl.uint64) + column.to(tl.uint64) * STEP)


@triton.jit
def aligned(number, ALIGNED: tl.constexpr):
    """Return the number; if it is a multiple of 16, in a form from which the compiler can tell."""
    return number // 16 * 16 if ALIGNED else number


@triton.jit
def cast(x, KIND: tl.constexpr):
    """Return x as KIND. Half precision goes through single: the interpreter cannot cast double to bfloat16."""
    return x.to(tl.float32).to(KIND) if KIND.primitive_bitwidth == 16 else x.to(KIND)


@triton.jit
def scale_noise(
    noise,
    factor_ptr,
    slope_ptr,
    column,
    place,
    is_inside,
    KIND: tl.constexpr,
    FACTOR: tl.constexpr,
    SOFTPLUS: tl.constexpr,
):
    """Return the noise, rounded to KIND, times its factor, or times the factor's softplus.

    FACTOR says what the factor is: nothing (0), one number (1), or one for each column (2) or each place (3). With a
    `slope_ptr`, the result is also multiplied by the derivative of softplus there.
    """
    scaled = noise
    if FACTOR:
        scaled = cast(noise, KIND).to(noise.dtype)
        if FACTOR == 1:
            factor = tl.load(factor_ptr).to(noise.dtype)
        else:
            factor = tl.load(factor_ptr + (column if FACTOR == 2 else place), mask=is_inside, other=0).to(noise.dtype)
        scaled *= cast(softplus(factor, KIND), KIND).to(noise.dtype) if SOFTPLUS else factor
        if slope_ptr is not None:
            x = tl.load(slope_ptr + column, mask=is_inside, other=0).to(noise.dtype)
            scaled = cast(scaled, KIND).to(noise.dtype) * softplus_slope(x, KIND)
    return scaled
