"""An op with several stacked weights against a loop over the weights, and its gradients against autograd's."""

import torch
from torch import Tensor

from flipout.ops.base import Op


def tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def check_gradients(op: Op, x: Tensor, weight: Tensor) -> None:
    """`gradients` and `bias_gradient` are those of `apply`."""
    bias = tensor(op.out_features)
    y = op.apply(x, weight, bias)
    grad = torch.randn_like(y)
    dx, dweight, dbias = torch.autograd.grad(y, (x, weight, bias), grad)
    torch.testing.assert_close(op.gradients(grad, x.detach(), weight.detach(), (True, True)), (dx, dweight))
    torch.testing.assert_close(op.bias_gradient(grad), dbias)
    assert op.gradients(grad, x.detach(), weight.detach(), (False, False)) == (None, None)


def check_stacked(op: Op, x: Tensor, weights: Tensor) -> None:
    """`batched` gives each run of rows its own weight, in `apply`, `put` and `gradients`."""
    stacked, biases = op.batched(len(weights)), tensor(len(weights), op.out_features)
    runs = x.unflatten(0, (len(weights), -1))
    expected = torch.cat([op.apply(rows, weight) for rows, weight in zip(runs, weights, strict=True)])
    torch.testing.assert_close(stacked.apply(x, weights), expected)
    with torch.no_grad():
        triples = zip(runs, weights, biases, strict=True)
        expected = torch.cat([op.apply(rows, weight, bias) for rows, weight, bias in triples])
        out = torch.full_like(expected, torch.nan)
        stacked.put(out, x, weights, biases)
    torch.testing.assert_close(out, expected)
    check_gradients(stacked, x, weights)


def check_factored(op: Op, x: Tensor, left: Tensor, right: Tensor, product: Tensor) -> None:
    """Two products with factors are one product with what the factors multiply to, for each of the rows."""
    (first, inner), (second, outer) = op.factored(left, right)
    torch.testing.assert_close(second.apply(first.apply(x, inner), outer), op.batched(len(left)).apply(x, product))
