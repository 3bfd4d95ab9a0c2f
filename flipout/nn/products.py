"""Products with a perturbed matrix that is read outside of its layer, by the scheme itself.

A scheme multiplies without forming the weights of every example. It serves a matrix as it is stored, or its transpose.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..ops.linear import Linear
from ..ops.turned import Turned
from .call import perturbations
from .handle import NoisyParameter, Source
from .inputs import compute_dtype, rows_back, rows_first
from .layers import parameter_of
from .layouts import Layout
from .reads import example_dim, example_stack, examples_first

_PAIRED = {
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__"), torch.mul),
    **dict.fromkeys(("add", "__add__", "__radd__"), torch.add),
}


def by_scheme(
    name: str,
    x: Tensor,
    args: tuple,
    kwargs: dict[str, Any],
    handles: list[NoisyParameter],
    layout: Layout | None,
) -> Tensor | None:
    """Return an operation's result as the scheme computes it, None where each example needs a call of its own."""
    if name in _PAIRED and len(handles) == 1 and not kwargs:
        return _by_vector(_PAIRED[name], handles[0], x, layout)
    weight = next((h for h in handles if h.dim() == 2 and h._is_transposed is not None), None)
    if weight is None or any(h is not weight for h in handles):
        return None
    if name == "linear":
        bias = args[2] if len(args) > 2 else kwargs.get("bias")
        return multiply(weight._sources[0], x, bias, turned=bool(weight._is_transposed), layout=layout)
    if name in ("matmul", "mm", "__matmul__", "__rmatmul__") and x.dim() > 1:
        on_left = weight is (args[1] if name == "__rmatmul__" else args[0])
        if not on_left:
            return multiply(weight._sources[0], x, None, turned=not weight._is_transposed, layout=layout)
        product = multiply(weight._sources[0], x.mT, None, turned=bool(weight._is_transposed), layout=layout)
        return None if product is None else product.mT.contiguous()
    if name == "addmm" and not kwargs and args[0].dim() == 1:
        return multiply(weight._sources[0], x, args[0], turned=not weight._is_transposed, layout=layout)
    if name == "embedding" and not weight._is_transposed and not any(args[3:]) and set(kwargs) <= {"padding_idx"}:
        return _look_up(weight._sources[0], x, layout)
    return None


def multiply(
    source: Source, x: Tensor, bias: Tensor | None, *, turned: bool, layout: Layout | None = None
) -> Tensor | None:
    """Return x Wᵀ + b, or x W + b where the weight is `turned`; None where the shapes do not fit."""
    layer, weight = source.layer, parameter_of(source.layer, source.name)
    outputs, inputs = weight.shape[::-1] if turned else weight.shape
    dim = example_dim(layer, layout)
    if x.shape[-1] != inputs or x.dim() <= dim + 1:
        return None
    is_fixed = layout is None and layer._declared.fixed_layout
    rows, place = (x, 0) if is_fixed else rows_first(layer, x, 1, layout)
    noise = perturbations(layer, rows, compute_dtype(layer, x, weight), layout)
    op = Turned(inputs, outputs) if turned else Linear(inputs, outputs)
    return rows_back(noise.product(op, rows, source.name, bias), place)


def _by_vector(function: Any, vector: NoisyParameter, x: Tensor, layout: Layout | None) -> Tensor | None:
    """Return x * v or x + v for a vector over the last dimension, as of a norm; None for all else.

    One operation over all examples takes a fifth of the time of `torch.vmap`, which matters in decoding.
    """
    if vector.dim() != 1 or vector._is_transposed is not False or x.dim() < 2 or x.shape[-1] != vector.shape[0]:
        return None
    (source,) = vector._sources
    rows, place = examples_first(source.layer, x, layout)
    if rows is not x or place != 0:
        return None
    stack = example_stack(source.layer, source.name, rows, layout)
    values = stack.view(len(stack), *[1] * (x.dim() - 1), -1)
    return function(rows.unflatten(0, (len(stack), -1)), values).flatten(0, 1)


def _look_up(source: Source, index: Tensor, layout: Layout | None) -> Tensor:
    """Return the rows that each example looks up in its own table."""
    layer, table = source.layer, parameter_of(source.layer, source.name)
    row, place = examples_first(layer, index.long(), layout)
    noise = perturbations(layer, row, table.dtype, layout)
    example = torch.arange(row.shape[0], device=row.device) // noise.draw.rows
    example = example.view(-1, *[1] * (row.dim() - 1)).expand(row.shape)
    y = F.embedding(row, table) + noise.scheme.row_noise(noise.matrix(source.name), row, example)
    return rows_back(y, place)
