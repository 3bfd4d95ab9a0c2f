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
from .reads import example_dim, examples_first


def by_scheme(
    name: str, x: Tensor, args: tuple, kwargs: dict[str, Any], handles: list[NoisyParameter]
) -> Tensor | None:
    """Return an operation's result as the scheme computes it, None where the weights have to be formed."""
    weight = next((h for h in handles if h.dim() == 2 and h._is_transposed is not None), None)
    if weight is None or any(h is not weight for h in handles):
        return None
    if name == "linear":
        bias = args[2] if len(args) > 2 else kwargs.get("bias")
        return multiply(weight._sources[0], x, bias, turned=bool(weight._is_transposed))
    if name in ("matmul", "mm", "__matmul__", "__rmatmul__") and x.dim() > 1:
        on_left = weight is (args[1] if name == "__rmatmul__" else args[0])
        if not on_left:
            return multiply(weight._sources[0], x, None, turned=not weight._is_transposed)
        product = multiply(weight._sources[0], x.mT, None, turned=bool(weight._is_transposed))
        return None if product is None else product.mT
    if name == "addmm" and not kwargs and args[0].dim() == 1:
        return multiply(weight._sources[0], x, args[0], turned=not weight._is_transposed)
    if name == "embedding" and not weight._is_transposed and not any(args[3:]) and set(kwargs) <= {"padding_idx"}:
        return _look_up(weight._sources[0], x)
    return None


def multiply(source: Source, x: Tensor, bias: Tensor | None, *, turned: bool) -> Tensor | None:
    """Return x Wᵀ + b, or x W + b where the weight is `turned`; None where the shapes do not fit."""
    layer, weight = source.layer, parameter_of(source.layer, source.name)
    outputs, inputs = weight.shape[::-1] if turned else weight.shape
    dim = example_dim(layer)
    if x.shape[-1] != inputs or x.dim() <= dim + 1:
        return None
    rows, place = (x, 0) if layer._declared.fixed_layout else rows_first(layer, x, 1)
    noise = perturbations(layer, rows, compute_dtype(layer, x, weight))
    op = Turned(inputs, outputs) if turned else Linear(inputs, outputs)
    return rows_back(noise.product(op, rows, source.name, bias), place)


def _look_up(source: Source, index: Tensor) -> Tensor:
    """Return the rows that each example looks up in its own table."""
    layer, table = source.layer, parameter_of(source.layer, source.name)
    row, place = examples_first(layer, index.long())
    noise = perturbations(layer, row, table.dtype)
    example = torch.arange(row.shape[0], device=row.device) // noise.draw.rows
    example = example.view(-1, *[1] * (row.dim() - 1)).expand(row.shape)
    y = F.embedding(row, table) + noise.scheme.row_noise(noise.matrix(source.name), row, example)
    return rows_back(y, place)
