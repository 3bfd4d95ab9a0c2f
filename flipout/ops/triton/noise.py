"""Noise in registers: words of SplitMix64, normal numbers of a word, and the softplus of what they are multiplied with.

Half precision has them from a GPU's own functions, all else to the last bits.
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
_FAST = tl.constexpr(
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
    z = (z ^ (z >> 30)) * _MIX0
    z = (z ^ (z >> 27)) * _MIX1
    return z ^ (z >> 31)


@triton.jit
def box_muller(z, REAL: tl.constexpr):
    """Two normal numbers of each word."""
    high, low = (z >> 32).to(tl.uint32), z.to(tl.uint32)
    unit = high.to(REAL) * _UNIT + _HALF_UNIT
    square = -2 * tl.log(unit)
    radius = tl.sqrt_rn(square) if REAL is tl.float32 else tl.sqrt(square)
    angle = low.to(REAL) * _TURN
    return tl.cos(angle) * radius, tl.sin(angle) * radius


@triton.constexpr_function
def _exact(kind):
    """Whether numbers of a kind are made to its last bits. Half precision has a GPU's own functions, off by 2⁻¹⁷."""
    return INTERPRETED or kind in (tl.float32, tl.float64)


@triton.jit
def gaussians(z, REAL: tl.constexpr, kind: tl.constexpr):
    """Two normal numbers of each word, for `kind`: half precision has them from a GPU's own functions, off by 2⁻²⁰."""
    if _exact(kind):
        first, second = box_muller(z, REAL)
    else:
        first, second = tl.inline_asm_elementwise(
            _FAST,
            "=f,=f,r,r",
            [(z >> 32).to(tl.uint32), z.to(tl.uint32)],
            dtype=(tl.float32, tl.float32),
            is_pure=True,
            pack=1,
        )
    return first, second


@triton.jit
def normals(z, kind: tl.constexpr):
    """The same, of a word that is not mixed yet."""
    return gaussians(splitmix(z), tl.float32, kind)


@triton.jit
def started(seed, fold, origin):
    """Where the stream of a Parameter and a base starts, for a rank: `origin` is the name plus the mixed base."""
    return splitmix(seed.to(tl.uint64) + fold.to(tl.uint64)) + origin.to(tl.uint64)


@triton.jit
def _exp(x):
    """eˣ to 2 ulp; tl.exp rounds x log₂e: off by |x| / 2 ulp on a GPU. ln 2 has two parts here, one exact."""
    n = tl.maximum(tl.floor(x * 1.4426950408889634 + 0.5), -126.0)
    return tl.exp((x - n * 0.693359375) + n * 2.12194440054690583e-4) * tl.exp2(n)


@triton.jit
def softplus(x, KIND: tl.constexpr):
    """log(1 + eˣ), made good for what 1 + eˣ has rounded away. A minimum of 20 and NaN would be 20."""
    least = tl.where(x > 20.0, 20.0, x)
    if _exact(KIND):
        e = _exp(least)
        u = 1 + e
        made = tl.where(u == 1, e, tl.log(u) * (e / tl.where(u == 1, 1.0, u - 1)))
    else:
        e = tl.exp2(least * 1.4426950408889634)
        log2 = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [1 + e], tl.float32, True, 1)
        small = e * (1 - e * (0.5 - e * (0.3333333333333333 - e * 0.25)))
        made = tl.where(e < 0.0625, small, log2 * 0.6931471805599453)
    return tl.where(x > 20.0, x, made)


@triton.jit
def sigmoid(x, KIND: tl.constexpr):
    if _exact(KIND):
        made = 1 / (1 + tl.exp(-x))
    else:
        u = 1 + tl.exp2(x * -1.4426950408889634)
        made = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [u], tl.float32, True, 1)
    return made
