"""The loops over time of `lstm.FlippedLSTM`.

On a CPU numpy computes all but the products and sigmoid: a call takes 0.3 µs where torch takes 0.8, and tanh of a small
array takes a ninth of torch's time.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .onednn import bind

aten = torch.ops.aten
_CACHED = 2**18  # numbers of the gates for which the backward pass prepares slopes at a time


class Weight(NamedTuple):
    """A matrix as each sequence sees it: W̄ + ΔŴ ∘ r sᵀ."""

    mean: Tensor
    delta: Tensor
    r: Tensor  # (N, outputs)
    s: Tensor  # (N, inputs)


def run_forward(
    gates: Tensor, states: tuple[Tensor, Tensor], cells: tuple[Tensor, Tensor], weight: Weight, reverse: bool
) -> None:
    """Compute h and c after every step, and turn `gates` (time, N, 4H), the product of the input, into i, f, g and o.

    `states` and `cells` are h and c before and after every step, each (time, N, H).
    """
    (_, count, rows), (mean, delta, r, s) = gates.shape, weight
    width = rows // 4
    flipped, product = gates.new_empty(count, width), gates.new_empty(count, rows)
    add_mean, put_delta = bind(mean, count)[1], bind(delta, count)[0]
    xp, view = _library(gates, *states, *cells, r, s)
    multiply, add, tanh = xp.multiply, xp.add, xp.tanh
    flipped_h, products, r_signs, s_signs = map(view, (flipped, product, r, s))
    candidate, change = view(gates.new_empty(2, count, width))
    by_gate = gates.unflatten(-1, (4, width)).transpose(1, 2)
    steps = zip(gates, states[0], *map(view, (gates, by_gate, *states, *cells)), strict=True)
    with np.errstate(all="ignore"):
        for gate, state, numbers, (i, f, g, o), h, next_h, c, next_c in _ordered(steps, reverse):
            add_mean(state, gate)
            multiply(h, s_signs, out=flipped_h)
            put_delta(flipped, product)
            multiply(products, r_signs, out=products)
            add(numbers, products, out=numbers)
            tanh(g, out=candidate)
            gate.sigmoid_()
            g[...] = candidate
            multiply(f, c, out=next_c)
            multiply(i, candidate, out=change)
            add(next_c, change, out=next_c)
            tanh(next_c, out=change)
            multiply(o, change, out=next_h)


def run_backward(
    grads: tuple[Tensor, Tensor, Tensor],
    gates: Tensor,
    cells: tuple[Tensor, Tensor],
    dgates: Tensor,
    weight: Weight,
    reverse: bool,
) -> None:
    """Fill `dgates` (time, N, 4H) with the gradient of the input's product.

    `grads` are the gradients of the outputs, of the last h and of the last c. The last two are replaced by those of the
    first h and c.
    """
    (steps, count, rows), (mean, delta, r, s) = gates.shape, weight
    width = rows // 4
    product, flipped = gates.new_empty(count, width), gates.new_empty(count, rows)
    put_mean, put_delta = bind(mean.T, count)[0], bind(delta.T, count)[0]
    xp, view = _library(gates, *cells, *grads, r, s)
    multiply, add = xp.multiply, xp.add
    flipped_gates, products, r_signs, s_signs = map(view, (flipped, product, r, s))
    upstreams, dh, dc = map(view, grads)
    dc_of_each, each, by_gate = dc[:, None], dgates.unbind(0), view(dgates.unflatten(-1, (4, width)))
    arrays = upstreams, view(gates.narrow(-1, width, width)), view(dgates), by_gate[:, :, :3], by_gate[:, :, 3]
    chunk = min(max(_CACHED // (count * rows), 1), steps)
    slopes = gates.new_empty(5, chunk, count, width)
    with np.errstate(all="ignore"):
        for start in _ordered(range(0, steps, chunk), not reverse):
            part = slice(start, min(start + chunk, steps))
            _put_slopes(slopes, gates[part], cells[0][part], cells[1][part], xp, view)
            by_c, by_h, to_c = view(slopes[:3]).swapaxes(0, 1).swapaxes(1, 2), view(slopes[3]), view(slopes[4])
            parts = zip(each[part], *(array[part] for array in arrays), by_c, by_h, to_c, strict=False)
            for dgate, upstream, f, numbers, gates_of_c, gate_of_h, c_slopes, h_slope, share in _ordered(
                parts, not reverse
            ):
                add(dh, upstream, out=dh)
                multiply(dh, share, out=products)
                add(dc, products, out=dc)
                multiply(c_slopes, dc_of_each, out=gates_of_c)
                multiply(h_slope, dh, out=gate_of_h)
                multiply(dc, f, out=dc)
                put_mean(dgate, grads[1])
                multiply(numbers, r_signs, out=flipped_gates)
                put_delta(flipped, product)
                multiply(products, s_signs, out=products)
                add(dh, products, out=dh)


def _put_slopes(
    slopes: Tensor, gates: Tensor, before: Tensor, after: Tensor, xp: Any, view: Callable[..., Any]
) -> None:
    """Fill `slopes` for some steps, with c before and after them.

    Multiplied by dc, the first three give the gradients of i, f and g before their activation; multiplied by dh, the
    fourth gives that of o, and the last the share of dh that goes to dc.
    """
    of_i, of_f, of_g, of_o, share = slopes[:, : len(gates)]
    i, f, g, o = gates.chunk(4, -1)
    tanh = torch.empty_like(share)
    xp.tanh(view(after), out=view(tanh))
    aten.sigmoid_backward(g, i, grad_input=of_i)
    aten.sigmoid_backward(before, f, grad_input=of_f)
    aten.tanh_backward(i, g, grad_input=of_g)
    aten.sigmoid_backward(tanh, o, grad_input=of_o)
    aten.tanh_backward(o, tanh, grad_input=share)


def _ordered(items: Iterable[Any], reverse: bool) -> Iterable[Any]:
    return reversed(list(items)) if reverse else items


def _library(*tensors: Tensor) -> tuple[Any, Callable[[Tensor], Any]]:
    """Return numpy and what makes its array of a tensor, or torch and the identity if numpy cannot read a tensor."""
    if all(type(tensor) in (Tensor, nn.Parameter) and tensor.is_cpu for tensor in tensors):
        return np, lambda tensor: tensor.detach().resolve_neg().numpy()
    return torch, lambda tensor: tensor
