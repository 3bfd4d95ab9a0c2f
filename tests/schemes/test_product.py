"""The product with a written-out backward pass is the definition, also differentiated twice."""

import pytest
import torch

from flipout._perturbation import Signs
from flipout.ops.linear import Linear
from flipout.schemes.product import FlippedProduct
from flipout.schemes.spec import Spec

SEED = torch.tensor(5)


@pytest.mark.parametrize("tokens", [(), (4,), (40,)], ids=["rows", "tokens", "formed"])
def test_outputs_and_gradients(tokens: tuple[int, ...]) -> None:
    op = Linear(5, 3)
    spec = Spec(op, op, Signs(11, 2, 6, antithetic=False))
    shapes = [(6, *tokens, 5), (3, 5), (3,), (3, 5)]
    x, mean, bias, delta = leaves = [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in shapes]
    assert spec.forms(x) == (tokens == (40,))
    results = []
    for y in (FlippedProduct.apply(x, mean, bias, delta, SEED, spec), spec.forward(x, mean, bias, delta, SEED)):
        assert isinstance(y, torch.Tensor)
        first = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum(part.square().sum() for part in first), leaves)  # pyright: ignore
        results.append((y, *first, *second))
    torch.testing.assert_close(results[0], results[1])
