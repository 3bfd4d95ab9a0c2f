"""What an LSTM does between its products, and the signs of flipout in one byte for each sequence and unit."""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportPossiblyUnboundVariable=false

import triton
import triton.language as tl

S = tl.constexpr(4)  # the bit of s in a byte of signs; those of r, for the four gates, are below


@triton.jit
def sign(byte, bit):
    return (1 - 2 * ((byte >> bit) & 1).to(tl.int32)).to(tl.float32)


@triton.jit
def sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def tanh(x):
    """By a series where 2 σ(2x) − 1 would round most of it away."""
    square = x * x
    series = 1 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315 - square * (62 / 2835))))
    return tl.where(square < 0.09, x * series, 2 * sigmoid(2 * x) - 1)


@triton.jit
def activated(i, f, g, o, c):
    """The next c and the next h, from the four gates before their activation."""
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return c, sigmoid(o) * tanh(c)


@triton.jit
def turned(i, f, g, o, before, c, dh, dc):
    """The gradients of the four gates before their activation, and dc for the step before. They are given as they were
    before it: half precision has no number between 1 and what a gate that is nearly open has to tell."""
    i, f, g, o = sigmoid(i.to(tl.float32)), sigmoid(f.to(tl.float32)), tanh(g.to(tl.float32)), sigmoid(o.to(tl.float32))
    c = tanh(c)
    dc += dh * o * (1 - c * c)
    di, df = dc * g * i * (1 - i), dc * before * f * (1 - f)
    return di, df, dc * i * (1 - g * g), dh * c * o * (1 - o), dc * f


@triton.jit
def load_gates(place, width, inside):
    """As they are stored: a conversion would wait for them."""
    i = tl.load(place, mask=inside, other=0, cache_modifier=".cg")
    f = tl.load(place + width, mask=inside, other=0, cache_modifier=".cg")
    g = tl.load(place + 2 * width, mask=inside, other=0, cache_modifier=".cg")
    o = tl.load(place + 3 * width, mask=inside, other=0, cache_modifier=".cg")
    return i, f, g, o


@triton.jit
def add_gates(i, f, g, o, pi, pf, pg, po):
    """In single precision, of which one of the two is."""
    return i + pi, f + pf, g + pg, o + po


@triton.jit
def store_gates(place, width, i, f, g, o, inside):
    tl.store(place, i, mask=inside)
    tl.store(place + width, f, mask=inside)
    tl.store(place + 2 * width, g, mask=inside)
    tl.store(place + 3 * width, o, mask=inside)


@triton.jit
def kept_alive(going, i, f, g, o, dc, last):
    """No gradients where a sequence does not go on, and dc as it was."""
    return (
        tl.where(going, i, 0),
        tl.where(going, f, 0),
        tl.where(going, g, 0),
        tl.where(going, o, 0),
        tl.where(going, dc, last),
    )


@triton.jit
def flip_gates(byte, i, f, g, o):
    return i * sign(byte, 0), f * sign(byte, 1), g * sign(byte, 2), o * sign(byte, 3)


@triton.jit(do_not_specialize=["t", "place", "count"])
def step(
    x,
    bias,
    alive,
    products,
    signs,
    pairs,
    gates,
    cells,
    y,
    t,
    place,
    count,
    width,
    x_row,
    x_time,
    padded,
    long,
    BIAS: tl.constexpr,
    ALIVE: tl.constexpr,
    INDEX: tl.constexpr,
    ELEMENTS: tl.constexpr,
):
    """Step t behind a batched product that left h W̄ᵀ and (h ∘ s) ΔŴᵀ: the next c, h, and h with h ∘ s. The state of a
    sequence that is not ALIVE stays as it is."""
    e = tl.program_id(0).to(INDEX) * ELEMENTS + tl.arange(0, ELEMENTS)
    total = count.to(INDEX) * width
    inside = e < total
    n, j = e // width, e % width
    byte = tl.load(signs + e, mask=inside, other=0)
    i, f, g, o = load_gates(x + place.to(INDEX) * x_time + n * x_row + j, width, inside)
    straight = products + n * long + j
    pi, pf, pg, po = load_gates(straight, width, inside)
    qi, qf, qg, qo = load_gates(straight + count.to(INDEX) * long, width, inside)
    qi, qf, qg, qo = flip_gates(byte, qi, qf, qg, qo)
    i, f, g, o = add_gates(i, f, g, o, qi, qf, qg, qo)
    i, f, g, o = add_gates(i, f, g, o, pi, pf, pg, po)
    if BIAS:
        bi, bf, bg, bo = load_gates(bias + j, width, inside)
        i, f, g, o = add_gates(i, f, g, o, bi, bf, bg, bo)
    cell, apart = cells + t.to(INDEX) * total + e, count.to(INDEX) * padded
    last = tl.load(cell, mask=inside, other=0)
    c, h = activated(i, f, g, o, last)
    h = h.to(y.dtype.element_ty)
    if ALIVE:
        going = tl.load(alive + place.to(INDEX) * count + n, mask=inside, other=0) != 0
        h = tl.where(going, h, tl.load(pairs + (t % 2) * 2 * apart + n * padded + j, mask=inside, other=0))
        c = tl.where(going, c, last)
    tl.store(cell + total, c, mask=inside)
    store_gates(gates + 4 * t.to(INDEX) * total + 4 * n * width + j, width, i, f, g, o, inside)
    tl.store(y + place.to(INDEX) * total + e, h, mask=inside)
    following = pairs + ((t + 1) % 2) * 2 * apart + n * padded + j
    tl.store(following, h, mask=inside)
    tl.store(following + apart, h * sign(byte, S), mask=inside)


@triton.jit(do_not_specialize=["t", "place", "count"])
def turn(
    left,
    alive,
    rest,
    dy,
    dcells,
    gates,
    cells,
    signs,
    pairs,
    t,
    place,
    count,
    width,
    dy_time,
    dy_row,
    padded,
    long,
    apart,
    LAST: tl.constexpr,
    FLIPPED: tl.constexpr,
    ALIVE: tl.constexpr,
    INDEX: tl.constexpr,
    ELEMENTS: tl.constexpr,
):
    """dg and dg ∘ r of step t, behind a batched product that left dg W̄ and (dg ∘ r) ΔŴ of the next one; for the LAST
    step, behind the dh that was given. Of a sequence that is not ALIVE dh goes past the step, as `rest`."""
    e = tl.program_id(0).to(INDEX) * ELEMENTS + tl.arange(0, ELEMENTS)
    total = count.to(INDEX) * width
    inside = e < total
    n, j = e // width, e % width
    if FLIPPED:
        byte = tl.load(signs + e, mask=inside, other=0)
    if LAST:
        dh = tl.load(left + e, mask=inside, other=0).to(tl.float32)
    else:
        straight = left + n * padded + j
        dh = tl.load(straight, mask=inside, other=0).to(tl.float32)
        if FLIPPED:
            dh += sign(byte, S) * tl.load(straight + count.to(INDEX) * padded, mask=inside, other=0).to(tl.float32)
    dh += tl.load(dy + place.to(INDEX) * dy_time + n * dy_row + j, mask=inside, other=0).to(tl.float32)
    i, f, g, o = load_gates(gates + 4 * t.to(INDEX) * total + 4 * n * width + j, width, inside)
    cell = cells + t.to(INDEX) * total + e
    before, c = tl.load(cell, mask=inside, other=0), tl.load(cell + total, mask=inside, other=0)
    last = tl.load(dcells + e, mask=inside, other=0)
    if ALIVE:
        dh += tl.load(rest + e, mask=inside, other=0)
    i, f, g, o, dc = turned(i, f, g, o, before, c, dh, last)
    if ALIVE:
        going = tl.load(alive + place.to(INDEX) * count + n, mask=inside, other=0) != 0
        i, f, g, o, dc = kept_alive(going, i, f, g, o, dc, last)
        tl.store(rest + e, tl.where(going, 0, dh), mask=inside)
    tl.store(dcells + e, dc, mask=inside)
    own = pairs + (t.to(INDEX) * count + n) * long + j
    store_gates(own, width, i, f, g, o, inside)
    if FLIPPED:
        i, f, g, o = flip_gates(byte, i, f, g, o)
        store_gates(own + apart, width, i, f, g, o, inside)


@triton.jit(do_not_specialize=["rows", "columns"])
def fill(
    out,
    mean,
    delta,
    rows,
    columns,
    padded_rows,
    padded,
    TRANSPOSED: tl.constexpr,
    INDEX: tl.constexpr,
    SIDE: tl.constexpr,
):
    """W̄ and ΔŴ of (rows, columns), or of that transposed, one after the other with zeros behind."""
    i = tl.program_id(1).to(INDEX) * SIDE + tl.arange(0, SIDE)
    j = tl.program_id(0).to(INDEX) * SIDE + tl.arange(0, SIDE)
    if TRANSPOSED:
        inside = (j < columns)[:, None] & (i < rows)[None, :]
        place = (j * rows)[:, None] + i[None, :]
    else:
        inside = (i < rows)[:, None] & (j < columns)[None, :]
        place = (i * columns)[:, None] + j[None, :]
    if tl.program_id(2) == 0:
        tile = tl.load(mean + place, mask=inside, other=0)
    else:
        tile = tl.load(delta + place, mask=inside, other=0)
    if TRANSPOSED:
        tile = tile.T
    filled = (i < padded_rows)[:, None] & (j < padded)[None, :]
    at = (tl.program_id(2).to(INDEX) * padded_rows + i) * padded
    tl.store(out + at[:, None] + j[None, :], tile, mask=filled)


@triton.jit
def _negative(x):
    return (x.to(tl.float32) < 0).to(tl.int32)


@triton.jit
def pack(out, r, s, total, width, ELEMENTS: tl.constexpr, INDEX: tl.constexpr):
    """The signs of a sequence's unit in one byte: r of its four gates, and s."""
    e = tl.program_id(0).to(INDEX) * ELEMENTS + tl.arange(0, ELEMENTS)
    inside = e < total
    byte = _negative(tl.load(s + e, mask=inside, other=0)) << S
    i, f, g, o = load_gates(r + 4 * (e // width) * width + e % width, width, inside)
    byte |= _negative(i) | _negative(f) << 1 | _negative(g) << 2 | _negative(o) << 3
    tl.store(out + e, byte.to(tl.uint8), mask=inside)


@triton.jit
def befores(
    out,
    y,
    h,
    signs,
    total,
    step,
    width,
    padded,
    apart,
    FLIPPED: tl.constexpr,
    REVERSE: tl.constexpr,
    INDEX: tl.constexpr,
    ELEMENTS: tl.constexpr,
):
    """The states before each step, as they are and FLIPPED, in the order of the steps; zero in the padding."""
    e = tl.program_id(0).to(INDEX) * ELEMENTS + tl.arange(0, ELEMENTS)
    line, j = e // padded, e % padded
    count = step // width
    t, n = line // count, line % count
    inside = (e < total) & (j < width)
    state = n * width + j
    place = total // padded // count - t if REVERSE else t - 1
    earlier = tl.load(y + place * step + state, mask=inside & (t > 0), other=0)
    earlier += tl.load(h + state, mask=inside & (t == 0), other=0).to(earlier.dtype)
    tl.store(out + e, earlier, mask=e < total)
    if FLIPPED:
        s = sign(tl.load(signs + state, mask=inside, other=0), S)
        tl.store(out + apart + e, earlier * s, mask=e < total)
