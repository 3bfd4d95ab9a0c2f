"""An op of one's own: everything that `SimpleOp` derives agrees with the op that is written out."""

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import errors
from flipout.ops import Linear, SimpleOp


class Turned(SimpleOp):
    """y = x W with W of shape (in, out)."""

    in_dim = out_dim = -1
    s_dim, r_dim = 0, 1

    def __init__(self, in_features: int, out_features: int, count: int | None = None) -> None:
        self.in_features, self.out_features, self.count = in_features, out_features, count

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.count is None:
            y = x @ weight
        else:
            y = (x.reshape(self.count, -1, self.in_features) @ weight).reshape(*x.shape[:-1], self.out_features)
        return y if bias is None else y + bias

    def batched(self, count: int) -> "Turned":
        return Turned(self.in_features, self.out_features, count)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class Perturbed(flipout.nn.Perturbed, Plain, default=("weight",), optional=("bias",)):
    def forward(self, x: Tensor) -> Tensor:
        if not flipout.nn.is_noisy(self):
            return Plain.forward(self, x)
        noise = flipout.nn.perturbations(self, x, flipout.nn.compute_dtype(self, x, self.weight))
        return noise.affine(Turned(6, 4), x)


flipout.register(Plain, Perturbed)


@pytest.mark.parametrize("scheme", ["shared", "flipout", flipout.Flipout(group=2), "independent"])
@pytest.mark.parametrize("shape", [(5, 6), (5, 3, 6), (700, 40, 6)], ids=["rows", "tokens", "large"])
@pytest.mark.parametrize("noise", [flipout.Gaussian(0.3), flipout.MeanField(std=0.3)], ids=["fixed", "learned"])
def test_every_scheme_equals_a_loop_over_examples(scheme, shape, noise) -> None:
    layer = flipout.perturb(Plain().double(), noise, scheme=scheme, where="*")
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    parameters = [x, *layer.parameters()]
    with flipout.hold(layer, seed=5):
        y = layer(x)
        weights = flipout.example_weights(layer)
        expected = torch.stack([row @ w + b for row, w, b in zip(x, weights["weight"], weights["bias"], strict=True)])
    torch.testing.assert_close(y, expected)
    coefficients = torch.randn_like(y)
    found = torch.autograd.grad(y, parameters, coefficients)
    torch.testing.assert_close(found, torch.autograd.grad(expected, parameters, coefficients))


def test_derived_parts_equal_those_written_out() -> None:
    x, grad, weight = torch.randn(7, 3, 6), torch.randn(7, 3, 4), torch.randn(6, 4)
    turned, written = Turned(6, 4), Linear(6, 4)
    dx, dw = turned.gradients(grad, x, weight, (True, True))
    expected_dx, expected_dw = written.gradients(grad, x, weight.T, (True, True))
    assert expected_dw is not None
    torch.testing.assert_close((dx, dw), (expected_dx, expected_dw.T))
    assert turned.gradients(grad, x, weight, (False, False)) == (None, None)
    torch.testing.assert_close(turned.bias_gradient(grad), written.bias_gradient(grad))
    assert turned.positions(x, grad) == written.positions(x, grad) == 3


def test_second_derivatives() -> None:
    layer = flipout.perturb(Plain().double(), flipout.Gaussian(0.3))
    x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    with flipout.hold(layer, seed=5):
        assert torch.autograd.gradgradcheck(lambda x: layer(x).tanh(), x)


def test_low_rank_is_refused_by_name() -> None:
    layer = flipout.perturb(Plain(), flipout.Gaussian(0.3), scheme="low_rank")
    with pytest.raises(errors.Unsupported, match=r"Turned: scheme 'low_rank' needs .*scheme='flipout'"):
        layer(torch.randn(5, 6))


def test_rank_one_forms_the_weights() -> None:
    """The factors of a SimpleOp are unknown, so each example's weight is formed."""
    layer, x = flipout.perturb(Plain().double(), flipout.Rademacher(0.3), scheme="rank_one"), torch.randn(5, 6).double()
    with flipout.hold(layer, seed=1):
        y = layer(x)
        weights = flipout.example_weights(layer)["weight"]
    layer.eval()
    expected = torch.cat(
        [torch.func.functional_call(layer, {"weight": w}, (row,)) for w, row in zip(weights, x.split(1), strict=True)]
    )
    torch.testing.assert_close(y, expected)
