"""The arithmetic of an LSTM's gates in registers, and the signs of flipout in one byte for each sequence and unit."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportIndexIssue=false

import triton
import triton.language as tl

S_BIT = tl.constexpr(4)  # the bit of s in a byte of signs; bits 0 to 3 are r of the gates i, f, g and o


@triton.jit
def sign(byte, bit):
    return (1 - 2 * ((byte >> bit) & 1).to(tl.int32)).to(tl.float32)


@triton.jit
def sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def tanh(x):
    """Return tanh x, by a series for small x, where 2 σ(2x) − 1 would round most of it away."""
    square = x * x
    series = 1 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315 - square * (62 / 2835))))
    return tl.where(square < 0.09, x * series, 2 * sigmoid(2 * x) - 1)


@triton.jit
def next_state(i, f, g, o, c):
    """Return the next c and h, from the four gates before their activation and the last c."""
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return c, sigmoid(o) * tanh(c)


@triton.jit
def gate_gradients(i, f, g, o, last_c, c, dh, dc):
    """Return the gradients of the four gates before their activation, and dc for the step before.

    The gates come before their activation too: half precision has no number between 1 and a gate that is nearly open.
    """
    i, f, g, o = sigmoid(i.to(tl.float32)), sigmoid(f.to(tl.float32)), tanh(g.to(tl.float32)), sigmoid(o.to(tl.float32))
    c = tanh(c)
    dc += dh * o * (1 - c * c)
    di, df = dc * g * i * (1 - i), dc * last_c * f * (1 - f)
    return di, df, dc * i * (1 - g * g), dh * c * o * (1 - o), dc * f


@triton.jit
def load_gates(place_ptr, width, is_inside):
    """Load four gates, `width` numbers apart, in the dtype stored: a conversion here would wait for the loads."""
    i = tl.load(place_ptr, mask=is_inside, other=0, cache_modifier=".cg")
    f = tl.load(place_ptr + width, mask=is_inside, other=0, cache_modifier=".cg")
    g = tl.load(place_ptr + 2 * width, mask=is_inside, other=0, cache_modifier=".cg")
    o = tl.load(place_ptr + 3 * width, mask=is_inside, other=0, cache_modifier=".cg")
    return i, f, g, o


@triton.jit
def add_gates(i, f, g, o, other_i, other_f, other_g, other_o):
    """Add in fp32: at least one operand is always fp32."""
    return i + other_i, f + other_f, g + other_g, o + other_o


@triton.jit
def store_gates(place_ptr, width, i, f, g, o, is_inside):
    tl.store(place_ptr, i, mask=is_inside)
    tl.store(place_ptr + width, f, mask=is_inside)
    tl.store(place_ptr + 2 * width, g, mask=is_inside)
    tl.store(place_ptr + 3 * width, o, mask=is_inside)


@triton.jit
def drop_ended(is_alive, i, f, g, o, dc, last_dc):
    """Zero the gates' gradients of sequences that have ended, and leave their dc unchanged."""
    return (
        tl.where(is_alive, i, 0),
        tl.where(is_alive, f, 0),
        tl.where(is_alive, g, 0),
        tl.where(is_alive, o, 0),
        tl.where(is_alive, dc, last_dc),
    )


@triton.jit
def flip_gates(byte, i, f, g, o):
    return i * sign(byte, 0), f * sign(byte, 1), g * sign(byte, 2), o * sign(byte, 3)
