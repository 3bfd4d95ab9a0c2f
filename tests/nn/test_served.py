"""An operation on a perturbed Parameter gives each example the result under its own weight."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

import flipout
from flipout import errors
from tests.networks import GAUSSIAN
from tests.nn.readings import IN, OUT, SERVED, N, Reader, T, compare_with_each_alone
from tests.zoo.oracle import weights_by_example


def compare(read: Callable[[Any, Tensor], Tensor], scheme: Any, where: Any = "*", bound: float = 1e-12) -> None:
    torch.manual_seed(0)
    plain = Reader(read).double().eval()
    model = flipout.perturb(copy.deepcopy(plain), GAUSSIAN, scheme=scheme, where=where)
    x = torch.randn(N, T, IN).double().requires_grad_()
    with flipout.hold(model, seed=3):
        with pytest.warns(errors.NeverRead):  # all Parameters are noisy, and few are read
            actual = model(x)
        if scheme == "shared":
            model.linear(x)  # somebody has to say how many examples there are
        weights = weights_by_example(model)
    others = dict(model.named_parameters())
    alone = [
        functional_call(plain, {**others, **row_weights}, (x[n : n + 1],)) for n, row_weights in enumerate(weights)
    ]
    truth = torch.cat(alone)
    assert (actual - plain(x)).abs().max() > 1e-3
    torch.testing.assert_close(actual, truth, rtol=bound, atol=bound)
    upstream, leaves = torch.randn_like(actual), [x, *model.parameters()]
    got, expected = (
        torch.autograd.grad(y, leaves, upstream, materialize_grads=True, retain_graph=True) for y in (actual, truth)
    )
    for gradient, expected_gradient in zip(got, expected, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=10 * bound, atol=10 * bound)


@pytest.mark.parametrize(
    "scheme", ["flipout", "independent", "shared", "low_rank", "rank_one", flipout.Flipout(group=2)], ids=str
)
@pytest.mark.parametrize("name", SERVED)
def test_a_read_is_each_example_alone(name: str, scheme: Any) -> None:
    compare(SERVED[name], scheme, bound=1e-5 if "cast" in name or name == "exp" else 1e-12)


class Padded(nn.Module):
    def __init__(self, padding: int) -> None:
        super().__init__()
        self.table, self.padding = nn.Embedding(7, OUT), padding

    def forward(self, index: Tensor) -> Tensor:
        return F.embedding(index, self.table.weight, self.padding)


@pytest.mark.parametrize("padding", [2, -5])
def test_the_padding_row_of_a_read_table_gets_no_gradient(padding: int) -> None:
    plain = Padded(padding).double()
    model = flipout.perturb(copy.deepcopy(plain), flipout.MeanField(std=0.3), where="*")
    compare_with_each_alone(plain, model, torch.tensor([[2, 1], [3, 2]]))
