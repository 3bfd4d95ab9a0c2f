"""A product with a matrix that is read outside of its layer is the scheme's, for a weight and for its transpose."""

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout.nn.handle import Source
from flipout.nn.products import multiply
from flipout.schemes import SchemeName
from tests.networks import GAUSSIAN


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("scheme", ["flipout", "independent", "shared"])
@pytest.mark.parametrize("tokens", [(), (7,)], ids=["rows", "tokens"])
def test_each_example_is_multiplied_by_its_own_weight(
    turned: bool, scheme: SchemeName, tokens: tuple[int, ...]
) -> None:
    layer = flipout.perturb(nn.Linear(4, 3).double(), GAUSSIAN, scheme=scheme)
    inputs, outputs = (3, 4) if turned else (4, 3)
    x, bias = torch.randn(5, *tokens, inputs, dtype=torch.float64), torch.randn(outputs, dtype=torch.float64)
    with flipout.hold(layer, seed=2):
        y = multiply(Source(layer, "weight"), x, bias, turned=turned)
        weights = flipout.example_weights(layer)["weight"].expand(5, 3, 4)
    matrices = weights if turned else weights.mT
    torch.testing.assert_close(y, torch.stack([x[n] @ matrices[n] for n in range(5)]) + bias)


def test_shapes_that_do_not_fit_are_left_to_others() -> None:
    layer = flipout.perturb(nn.Linear(4, 3), GAUSSIAN)
    with flipout.hold(layer, seed=2):
        assert multiply(Source(layer, "weight"), torch.zeros(5, 3), None, turned=False) is None
        assert multiply(Source(layer, "weight"), torch.zeros(4), None, turned=False) is None


class Scaled(nn.Module):
    """A norm's gain and shift as people write them, read by the code around a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm.weight * x.tanh() + self.norm.bias


@pytest.mark.parametrize("scheme", ["rank_one", "flipout", "independent"])
@pytest.mark.parametrize("shape", [(6, 4), (6, 5, 4), (6, 2, 4, 4)], ids=str)
@pytest.mark.parametrize("grad", [True, False])
def test_vectors_meet_all_examples_at_once(
    scheme: SchemeName, shape: tuple[int, ...], grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = flipout.perturb(Scaled().double(), flipout.Gaussian(0.3), scheme=scheme, where="*")
    x = torch.randn(shape, dtype=torch.float64)
    monkeypatch.setattr("flipout.nn.served._each", None)  # no call for each example alone
    with flipout.hold(model, seed=2, rows=2), torch.set_grad_enabled(grad):
        y, weights = model(x), flipout.example_weights(model.norm)
        expected = torch.stack([x[n].tanh() * weights["weight"][n // 2] + weights["bias"][n // 2] for n in range(6)])
        torch.testing.assert_close(y, expected)
        if grad:
            found, wanted = (torch.autograd.grad(z.square().sum(), [*model.parameters()]) for z in (y, expected))
            torch.testing.assert_close(found, wanted)


def test_vectors_whose_examples_are_elsewhere_are_left_to_others() -> None:
    model = flipout.perturb(Scaled().double(), flipout.Gaussian(0.3), scheme="independent", where="*", batch_dim=1)
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    with flipout.hold(model, seed=2):
        y, weights = model(x), flipout.example_weights(model.norm)
        expected = [x[:, n].tanh() * weights["weight"][n] + weights["bias"][n] for n in range(5)]
    torch.testing.assert_close(y, torch.stack(expected, 1))
