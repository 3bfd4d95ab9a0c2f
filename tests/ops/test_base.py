"""Properties of all ops."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout.ops.conv import Conv
from flipout.ops.linear import Linear
from tests.oracles import tensor

LAYERS: dict[str, tuple[Any, type, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 3), Linear, (4,)),
    "tokens": (lambda: nn.Linear(4, 3), Linear, (5, 4)),
    "convolution": (lambda: nn.Conv2d(2, 3, 3), Conv, (2, 5, 5)),
}


@pytest.mark.parametrize("scheme", ["flipout", flipout.Flipout(group=3), flipout.LowRank(2), "rank_one"], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_an_expanded_input_is_multiplied_by_the_mean_once(name: str, scheme: Any, monkeypatch) -> None:
    """Outputs and gradients equal those of copied rows, but W̄ is multiplied with a single row."""
    make, op, shape = LAYERS[name]
    layer = flipout.perturb(make().double(), flipout.Gaussian(0.3), scheme=scheme)
    x, row_counts, apply = tensor(1, *shape, grad=False), [], op.apply

    def counted(self: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if bias is not None:
            row_counts.append(len(x))
        return apply(self, x, weight, bias)

    monkeypatch.setattr(op, "apply", counted)
    results = []
    for rows in (x.expand(6, *shape), x.repeat(6, *[1] * len(shape))):
        with flipout.hold(layer, seed=1):
            y = layer(rows)
        results.append((y, *torch.autograd.grad(y.square().sum(), list(layer.parameters()))))
    torch.testing.assert_close(results[0], results[1])
    assert row_counts == [1, 6]


SCHEMES = ["shared", "flipout", flipout.Flipout(group=3), "independent", flipout.LowRank(2), "rank_one"]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_each_row_of_an_expanded_input_has_its_own_gradient(name: str, scheme: Any) -> None:
    """Rows that share memory are still several examples with separate weights, so each has its own gradient.

    First and second derivatives equal those of copied rows, for an expanded leaf and for an expansion of a leaf.
    """
    make, _, shape = LAYERS[name]
    layer = flipout.perturb(make().double(), flipout.Gaussian(0.3), scheme=scheme)
    row = tensor(1, *shape)
    inputs = [row.detach().repeat(6, *[1] * len(shape)), row.detach().expand(6, *shape), row.expand(6, *shape)]
    results = []
    for x in inputs:
        leaf = x if x.requires_grad else x.requires_grad_()
        with flipout.hold(layer, seed=1):
            y = layer(leaf)
        (first,) = torch.autograd.grad(y.sin().sum(), leaf, create_graph=True)
        results.append(
            (first, *torch.autograd.grad(first.square().sum(), (leaf, *layer.parameters()), allow_unused=True))
        )
    for found in results[1:]:
        torch.testing.assert_close(found, results[0], rtol=0, atol=1e-10)


def test_an_input_with_a_negative_bit() -> None:
    """torch negates the imaginary part of a conjugate lazily, when it is read."""
    layer = flipout.perturb(nn.Linear(4, 3), flipout.Gaussian(0.3))
    x = torch.randn(5, 4, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    with flipout.hold(layer, 7):
        torch.testing.assert_close(layer(x), layer(x.resolve_neg()))


@pytest.mark.parametrize("name", LAYERS)
def test_results_are_put_with_a_bias_for_each_weight(name: str) -> None:
    make, _, shape = LAYERS[name]
    layer, x, biases = make().double(), tensor(6, *shape, grad=False), tensor(2, 3, grad=False)
    weight = tensor(2, *layer.weight.shape, grad=False)
    if isinstance(layer, nn.Linear):
        op = Linear(4, 3)
        apply = torch.nn.functional.linear
    else:
        op = Conv(2, 3, (1, 1), (0, 0), (1, 1), 1)
        apply = torch.nn.functional.conv2d
    expected = torch.cat([apply(x[3 * i : 3 * i + 3], weight[i], biases[i]) for i in range(2)])
    out = torch.full_like(expected, torch.nan)
    op.batched(2).put(out, x, weight, biases)
    torch.testing.assert_close(out, expected)
