"""Noise in registers: SplitMix64 words, the normal numbers of a word, and the softplus that scales them.

In half precision these use a GPU's approximate functions; in single and double precision they are exact to a few ulp.
"""
# Triton reads a kernel's annotations in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false

import math

import triton
import triton.language as tl

from ...draws.bits import GAMMA, MIX
from .base import INTERPRETED

STEP = tl.constexpr(GAMMA % 2**64)  # from one word of a stream to the next
_MIX0, _MIX1 = tl.constexpr(MIX[0] % 2**64), tl.constexpr(MIX[1] % 2**64)
_UNIT, _HALF_UNIT, _TURN = tl.constexpr(2.0**-32), tl.constexpr(2.0**-33), tl.constexpr(math.tau / 2**32)
# Box and Muller by the GPU's own logarithm, root, cosine and sine: $2 is the word's high half, $3 its low half.
_APPROXIMATE_BOX_MULLER = tl.constexpr(
    """{
    .reg .f32 a, b;
    cvt.rn.f32.u32 a, $2;
    fma.rn.f32 a, a, 0f2F800000, 0f2F000000;
    lg2.approx.ftz.f32 a, a;
    mul.f32 a, a, 0fBFB17218;
    max.f32 a, a, 0f00000000;
    sqrt.approx.ftz.f32 a, a;
    cvt.rn.f32.u32 b, $3;
    mul.f32 b, b, 0f30C90FDB;
    cos.approx.ftz.f32 $0, b;
    sin.approx.ftz.f32 $1, b;
    mul.f32 $0, $0, a;
    mul.f32 $1, $1, a;
    }"""
)


@triton.jit
def splitmix(z):
    """Mix the state `z` of SplitMix64 into a random 64-bit word."""
    z = (z ^ (z >> 30)) * _MIX0
    z = (z ^ (z >> 27)) * _MIX1
    return z ^ (z >> 31)


@triton.jit
def box_muller(word, REAL: tl.constexpr):
    """Return two normal numbers of each word, computed in REAL."""
    high, low = (word >> 32).to(tl.uint32), word.to(tl.uint32)
    unit = high.to(REAL) * _UNIT + _HALF_UNIT
    square = -2 * tl.log(unit)
    radius = tl.sqrt_rn(square) if REAL is tl.float32 else tl.sqrt(square)
    angle = low.to(REAL) * _TURN
    return tl.cos(angle) * radius, tl.sin(angle) * radius


@triton.constexpr_function
def _is_exact(kind):
    """Return True if numbers for `kind` are exact to its last bits. Half precision uses approximations off by 2⁻¹⁷."""
    return INTERPRETED or kind in (tl.float32, tl.float64)


@triton.jit
def word_normals(word, REAL: tl.constexpr, KIND: tl.constexpr):
    """Return two normal numbers of each word, to be rounded to KIND. For half precision they are off by 2⁻²⁰."""
    if _is_exact(KIND):
        first, second = box_muller(word, REAL)
    else:
        first, second = tl.inline_asm_elementwise(
            _APPROXIMATE_BOX_MULLER,
            "=f,=f,r,r",
            [(word >> 32).to(tl.uint32), word.to(tl.uint32)],
            dtype=(tl.float32, tl.float32),
            is_pure=True,
            pack=1,
        )
    return first, second


@triton.jit
def state_normals(z, KIND: tl.constexpr):
    """Return two normal numbers of each SplitMix64 state, to be rounded to KIND."""
    return word_normals(splitmix(z), tl.float32, KIND)


@triton.jit
def stream_start(seed, fold, origin):
    """Return where the stream of a Parameter and a base starts: mix(seed + fold) + origin.

    `fold` sets ranks apart, and `origin` is the stream's name plus the mixed base.
    """
    return splitmix(seed.to(tl.uint64) + fold.to(tl.uint64)) + origin.to(tl.uint64)


@triton.jit
def _exp(x):
    """Return eˣ to 2 ulp. tl.exp rounds x log₂e, which is off by |x| / 2 ulp on a GPU. Here ln 2 has two parts, one
    of them exact."""
    n = tl.maximum(tl.floor(x * 1.4426950408889634 + 0.5), -126.0)
    return tl.exp((x - n * 0.693359375) + n * 2.12194440054690583e-4) * tl.exp2(n)


@triton.jit
def softplus(x, KIND: tl.constexpr):
    """Return log(1 + eˣ), corrected for what rounding 1 + eˣ loses."""
    capped = tl.where(x > 20.0, 20.0, x)  # not tl.minimum, which turns NaN into 20
    if _is_exact(KIND):
        e = _exp(capped)
        u = 1 + e
        result = tl.where(u == 1, e, tl.log(u) * (e / tl.where(u == 1, 1.0, u - 1)))
    else:
        e = tl.exp2(capped * 1.4426950408889634)
        log2 = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [1 + e], tl.float32, True, 1)
        small = e * (1 - e * (0.5 - e * (0.3333333333333333 - e * 0.25)))
        result = tl.where(e < 0.0625, small, log2 * 0.6931471805599453)
    return tl.where(x > 20.0, x, result)


@triton.jit
def softplus_slope(x, KIND: tl.constexpr):
    """Return the derivative of softplus, 1 / (1 + e⁻ˣ)."""
    if _is_exact(KIND):
        slope = 1 / (1 + tl.exp(-x))
    else:
        u = 1 + tl.exp2(x * -1.4426950408889634)
        slope = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [u], tl.float32, True, 1)
    return slope
