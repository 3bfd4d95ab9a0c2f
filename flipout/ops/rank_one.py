"""Products with weights W̄ + r sᵀ, where each example has vectors r and s of its own."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..draws.bits import is_transformed
from .base import Op, apply_once, is_tracked

_FROM = 2**13  # numbers of an example from which one product for each is faster than a multiplication and a sum


def rank_one_product(op: Op, x: Tensor, mean: Tensor, r: Tensor, s: Tensor, bias: Tensor | None) -> Tensor:
    """Return apply(x, W̄) + r (s · x): the plain product, a dot product for each row, and one addition.

    Args:
        op: A matrix product over the last dimension.
        x: The input, (N, …, in). Each example has an equal share of its rows, in order.
        mean: W̄.
        r: (examples, out).
        s: (examples, in).
        bias: (out,), or (examples, out) if each example has its own; None for no bias.
    """
    examples, by_example = len(s), bias is not None and bias.dim() == 2
    y = _mean_product(op, x, mean, None if by_example else bias)
    is_expanded = y.shape[0] > 1 and y.stride(0) == 0  # as x is
    is_one_row = is_expanded and y.shape[0] == examples  # else an example has several of the equal rows
    count = 1 if is_one_row else examples
    rows = (y[:1] if is_one_row else y).reshape(count, _rows_per_example(x, examples), y.shape[-1])
    terms, factors = dot_products(x, s), r.unsqueeze(1)
    shape = (*x.shape[:-1], y.shape[-1])
    if is_expanded or is_tracked():
        rows = torch.addcmul(rows, terms, factors)
        return (rows + bias.unsqueeze(1) if by_example else rows).view(shape)  # pyright: ignore[reportOptionalMemberAccess]
    rows.addcmul_(terms, factors)
    return (rows.add_(bias.unsqueeze(1)) if by_example else rows).view(shape)  # pyright: ignore[reportOptionalMemberAccess]


def dot_products(x: Tensor, s: Tensor) -> Tensor:
    """Return s · x for each row of each example, (examples, rows of an example, 1)."""
    examples, features = s.shape
    has_gradient = torch.is_grad_enabled() and x.requires_grad  # rows that share memory have separate gradients
    if x.shape[0] == examples > 1 and x.stride(0) == 0 and not (has_gradient or is_transformed()):
        return F.linear(s, x[0].reshape(_rows_per_example(x, examples), features)).unsqueeze(-1)  # one row, expanded
    rows = x.reshape(examples, _rows_per_example(x, examples), features)
    if is_tracked() or not x.is_cpu or rows.shape[1] * features < _FROM:
        return torch.linalg.vecdot(rows, s.unsqueeze(1)).unsqueeze(-1)
    # torch.bmm takes nine times as long for one column (measured with 40 examples of 125 × 784 in fp32).
    terms = x.new_empty(examples, rows.shape[1], 1)
    for example, signs, out in zip(rows, s, terms.squeeze(-1), strict=True):
        torch.mv(example, signs, out=out)
    return terms


def _rows_per_example(x: Tensor, examples: int) -> int:
    """Return the rows of each example, tokens included. With 0 features, reshape(-1) could not infer them."""
    return x.shape[:-1].numel() // examples


def _mean_product(op: Op, x: Tensor, mean: Tensor, bias: Tensor | None) -> Tensor:
    """Return apply(x, W̄), by the fastest product that serves it."""
    if is_tracked() or not x.is_contiguous():
        return apply_once(op, x, mean, bias)
    return op.infer(x.flatten(0, -2), mean, bias).view(*x.shape[:-1], op.out_features)
