"""All steps of an LSTM for a few sequences in one launch each way.

In each step every program first (MULTIPLY) makes a share of the sums of its tile of a product, then (GATE) adds up
the shares of all for its share of the state. Programs meet in between, so all of them must run at once. The weights
stay in the device's cache; c, dc and signs in registers. What programs exchange is read past the caches of their own.
"""
# Triton reads a kernel's annotations and loops in its own way.
# pyright: reportInvalidTypeForm=false, reportArgumentType=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# pyright: reportPossiblyUnboundVariable=false, reportUnboundVariable=false

import triton
import triton.language as tl

from .base import INTERPRETED
from .gates import S, activated, add_gates, flip_gates, kept_alive, load_gates, sign, store_gates, turned

_INTERPRETED = tl.constexpr(INTERPRETED)


@triton.jit
def dot(a, b, sum, PRECISION: tl.constexpr):
    if _INTERPRETED:  # the interpreter multiplies the bits of bfloat16
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, sum, input_precision=PRECISION)


@triton.jit
def _product(
    a,
    a_apart,
    b,
    b_apart,
    there,
    signs,
    FLIPPED: tl.constexpr,
    LENGTH: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """a Bᵀ, and where FLIPPED + signs ∘ a′ B′ᵀ, from pointers to the first tiles of a and B; a′ and B′ lie so many
    numbers apart from them."""
    straight = tl.full((COLUMNS, ROWS), 0, tl.float32)
    flipped = tl.full((COLUMNS, ROWS), 0, tl.float32)
    for k in range(0, LENGTH, DEPTH):
        own = tl.load(a + k, mask=there, other=0, cache_modifier=".cg")
        straight = dot(tl.load(b + k), own.T, straight, PRECISION)
        if FLIPPED:
            own = tl.load(a + a_apart + k, mask=there, other=0, cache_modifier=".cg")
            flipped = dot(tl.load(b + b_apart + k), own.T, flipped, PRECISION)
    if FLIPPED:
        return straight.T + signs * flipped.T
    else:
        return straight.T


@triton.jit
def _meet(counter, arrivals):
    """Go on when all programs have come here; what they wrote before can then be read."""
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="release")
    while tl.atomic_add(counter, 0, sem="acquire") < arrivals:
        pass
    tl.debug_barrier()


@triton.jit(do_not_specialize=["begin", "end", "steps", "count"])
def forward(
    x,
    bias,
    alive,
    signs,
    weights,
    pairs,
    gates,
    cells,
    y,
    parts,
    counter,
    begin,
    end,
    steps,
    count,
    width,
    x_row,
    x_time,
    b_apart,
    MULTIPLY: tl.constexpr,
    GATE: tl.constexpr,
    BIAS: tl.constexpr,
    FLIPPED: tl.constexpr,
    ALIVE: tl.constexpr,
    REVERSE: tl.constexpr,
    SPLIT: tl.constexpr,
    LENGTH: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    SHARE: tl.constexpr,
    INDEX: tl.constexpr,
):
    """The steps from `begin` to `end` of `count` sequences; the state of one that is not ALIVE stays as it is."""
    padded: tl.constexpr = SPLIT * LENGTH
    n, column = tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row, there = n.to(INDEX), (n < count)[:, None]
    inside = there & (column < 4 * width)[None, :]
    weight = tl.minimum(column, 4 * width - 1)
    k = tl.program_id(1) * LENGTH + tl.arange(0, DEPTH)
    a = pairs + (row * padded)[:, None] + k[None, :]
    b = weights + (weight.to(INDEX) * padded)[:, None] + k[None, :]
    total, apart = count.to(INDEX) * width, count.to(INDEX) * padded
    part = parts + tl.program_id(1) * 4 * total + (4 * row * width)[:, None] + column[None, :]
    r = 1.0
    if FLIPPED:
        byte = tl.load(signs + (row * width)[:, None] + (weight % width)[None, :], mask=inside, other=0)
        r = sign(byte, (weight // width)[None, :])
    programs = tl.num_programs(0) * tl.num_programs(1)
    e = (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)).to(INDEX) * SHARE + tl.arange(0, SHARE)
    own, line, j = e < total, e // width, e % width
    if FLIPPED:
        s = sign(tl.load(signs + e, mask=own, other=0), S)
    c = tl.load(cells + begin.to(INDEX) * total + e, mask=own, other=0)
    if BIAS:
        bi, bf, bg, bo = load_gates(bias + j, width, own)
    if ALIVE:
        h = tl.load(pairs + (begin % 2) * 2 * apart + line * padded + j, mask=own, other=0)
    t, met = begin, 0
    while t < end:
        place = (steps - 1 - t if REVERSE else t).to(INDEX)
        if GATE:
            xi, xf, xg, xo = load_gates(x + place * x_time + line * x_row + j, width, own)
        if MULTIPLY:
            now = a + (t % 2) * 2 * apart
            made = _product(now, apart, b, b_apart, there, r, FLIPPED, LENGTH, PRECISION, ROWS, COLUMNS, DEPTH)
            tl.store(part, made, mask=inside)
        if MULTIPLY and GATE:
            met += programs
            _meet(counter, met)
        if GATE:
            i, f, g, o = load_gates(parts + 4 * line * width + j, width, own)
            for share in tl.static_range(1, SPLIT):
                pi, pf, pg, po = load_gates(parts + 4 * (share * total + line * width) + j, width, own)
                i, f, g, o = add_gates(i, f, g, o, pi, pf, pg, po)
            i, f, g, o = add_gates(i, f, g, o, xi, xf, xg, xo)
            if BIAS:
                i, f, g, o = add_gates(i, f, g, o, bi, bf, bg, bo)
            next_c, next_h = activated(i, f, g, o, c)
            next_h = next_h.to(y.dtype.element_ty)
            if ALIVE:
                going = tl.load(alive + place * count + line, mask=own, other=0) != 0
                next_h, next_c = tl.where(going, next_h, h), tl.where(going, next_c, c)
            h, c = next_h, next_c
            following = pairs + ((t + 1) % 2) * 2 * apart + line * padded + j
            tl.store(following, h, mask=own)
            if FLIPPED:
                tl.store(following + apart, h * s, mask=own)
        t += 1
        if t < end:
            met += programs
            _meet(counter, met)
        if GATE:  # what nobody waits for
            tl.store(y + place * total + e, h, mask=own)
            tl.store(cells + t.to(INDEX) * total + e, c, mask=own)
            store_gates(gates + 4 * ((t - 1).to(INDEX) * total + line * width) + j, width, i, f, g, o, own)


@triton.jit(do_not_specialize=["begin", "end", "steps", "count"])
def backward(
    alive,
    rest,
    dy,
    dcells,
    gates,
    cells,
    signs,
    pairs,
    sums,
    weights,
    parts,
    counter,
    begin,
    end,
    steps,
    count,
    width,
    dy_time,
    dy_row,
    a_apart,
    b_apart,
    MULTIPLY: tl.constexpr,
    GATE: tl.constexpr,
    FLIPPED: tl.constexpr,
    ALIVE: tl.constexpr,
    REVERSE: tl.constexpr,
    SPLIT: tl.constexpr,
    LENGTH: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    SHARE: tl.constexpr,
    INDEX: tl.constexpr,
):
    """The steps from `begin` down to `end`: dh before each, and the gradients of the gates of the step before it; and
    these summed up over the steps."""
    long: tl.constexpr = SPLIT * LENGTH
    n, column = tl.arange(0, ROWS), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row, there = n.to(INDEX), (n < count)[:, None]
    inside = there & (column < width)[None, :]
    k = tl.program_id(1) * LENGTH + tl.arange(0, DEPTH)
    a = pairs + (row * long)[:, None] + k[None, :]
    b = weights + (tl.minimum(column, width - 1).to(INDEX) * long)[:, None] + k[None, :]
    total = count.to(INDEX) * width
    place = (row * width)[:, None] + column[None, :]
    s = 1.0
    if FLIPPED:
        s = sign(tl.load(signs + place, mask=inside, other=0), S)
    part = parts + tl.program_id(1) * total + place
    programs = tl.num_programs(0) * tl.num_programs(1)
    e = (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)).to(INDEX) * SHARE + tl.arange(0, SHARE)
    own, line, j = e < total, e // width, e % width
    dc = tl.load(dcells + e, mask=own, other=0)
    if FLIPPED:
        byte = tl.load(signs + e, mask=own, other=0)
    si, sf, sg, so = load_gates(sums + 4 * line * width + j, width, own)
    if ALIVE:
        past = tl.load(rest + e, mask=own, other=0)
    t, met = begin, 0
    while t > end:
        t -= 1
        earlier = tl.maximum(t - 1, 0).to(INDEX)
        if GATE:
            before = (steps - 1 - earlier if REVERSE else earlier).to(INDEX)
            given = tl.load(dy + before * dy_time + line * dy_row + j, mask=own, other=0)
            i, f, g, o = load_gates(gates + 4 * (earlier * total + line * width) + j, width, own)
            c0 = tl.load(cells + earlier * total + e, mask=own, other=0)
            c1 = tl.load(cells + (earlier + 1) * total + e, mask=own, other=0)
        if MULTIPLY:
            now = a + t.to(INDEX) * count * long
            summed = _product(now, a_apart, b, b_apart, there, s, FLIPPED, LENGTH, PRECISION, ROWS, COLUMNS, DEPTH)
            tl.store(part, summed, mask=inside)
        if MULTIPLY and GATE:
            met += programs
            _meet(counter, met)
        if GATE:  # noqa: SIM102 (decided while compiling)
            if t > 0:
                dh = tl.load(parts + e, mask=own, other=0, cache_modifier=".cg")
                for share in tl.static_range(1, SPLIT):
                    dh += tl.load(parts + share * total + e, mask=own, other=0, cache_modifier=".cg")
                dh += given
                if ALIVE:
                    dh += past
                di, df, dg, do, next_dc = turned(i, f, g, o, c0, c1, dh, dc)
                if ALIVE:
                    going = tl.load(alive + before * count + line, mask=own, other=0) != 0
                    di, df, dg, do, next_dc = kept_alive(going, di, df, dg, do, next_dc, dc)
                    past = tl.where(going, 0, dh)
                dc = next_dc
                made = pairs + (earlier * count + line) * long + j
                store_gates(made, width, di, df, dg, do, own)
                si, sf, sg, so = add_gates(si, sf, sg, so, di, df, dg, do)
                if FLIPPED:
                    di, df, dg, do = flip_gates(byte, di, df, dg, do)
                    store_gates(made + a_apart, width, di, df, dg, do, own)
        if t > end:
            met += programs
            _meet(counter, met)
    if GATE:
        tl.store(dcells + e, dc, mask=own)
        if ALIVE:
            tl.store(rest + e, past, mask=own)
        store_gates(sums + 4 * line * width + j, width, si, sf, sg, so, own)
