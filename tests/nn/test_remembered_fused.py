"""Where kernels serve, a remembered call computes what the long way computes. Unusual calls take the long way."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout.backend import choosing
from flipout.nn.remembered_fused import FusedCall
from tests.networks import gradients
from tests.nn.test_remembered_call import forget, remembered_calls
from tests.ops.triton.kernels import DEVICE, MARKS

pytestmark = MARKS
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(5, 4), (6, 5)),
    "no bias": (lambda: nn.Linear(5, 4, bias=False), (6, 5)),
    "tokens": (lambda: nn.Linear(5, 4), (6, 3, 5)),
    "convolution": (lambda: nn.Conv1d(4, 6, 3, padding=1, groups=2), (6, 4, 5)),
}
NOISES = {
    "gaussian": flipout.Gaussian(0.3),
    "rademacher": flipout.Rademacher(0.3),
    "multiplicative": flipout.MultiplicativeGaussian(0.5),
    "mean field": flipout.MeanField(std=0.3),
    "relative": flipout.MeanField(relative=0.3),
}
EXACTLY: Any = {"atol": 0.0, "rtol": 0.0}


def step(model: nn.Module, x: Tensor) -> list[Tensor]:
    """Return the output and all gradients of one draw, by kernels."""
    model.zero_grad()
    leaf = x.clone().requires_grad_()
    torch.manual_seed(3)
    with choosing("triton"):
        y = model(leaf)
        y.float().sin().sum().backward()
    assert leaf.grad is not None
    return [y.detach(), leaf.grad, *gradients(model).values()]


def usual(layer: str = "linear", noise: str = "mean field", **options: Any) -> tuple[nn.Module, Tensor]:
    make, shape = LAYERS[layer]
    torch.manual_seed(0)
    model = flipout.perturb(nn.Sequential(make(), nn.Tanh()).to(DEVICE), NOISES[noise], **options)
    return model, torch.randn(shape, device=DEVICE)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note each product of a remembered call."""
    taken: list[str] = []
    product = FusedCall._product

    def noted(self: FusedCall, *args: Any) -> Tensor | None:
        y = product(self, *args)
        taken.append("long" if y is None else "short")
        return y

    monkeypatch.setattr(FusedCall, "_product", noted)
    return taken


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("layer", LAYERS)
def test_it_computes_what_the_long_way_does(layer: str, noise: str, products: list[str]) -> None:
    model, x = usual(layer, noise)
    expected = step(model, x)
    assert not products
    assert all(isinstance(call, FusedCall) for call in remembered_calls(model))
    torch.testing.assert_close(step(model, x), expected, **EXACTLY)
    assert products == ["short"]


@pytest.mark.parametrize("noise", ["gaussian", "mean field"])
def test_under_autocast(noise: str, products: list[str]) -> None:
    model, x = usual("tokens", noise)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        expected = step(model, x)
        torch.testing.assert_close(step(model, x), expected, **EXACTLY)
        assert expected[0].dtype == torch.bfloat16
    assert products == ["short"]
    assert step(model, x)[0].dtype == torch.float32
    assert products == ["short"]  # without autocast the call is another one


@pytest.mark.parametrize(
    "scheme", ["shared", "independent", flipout.Flipout(group=2), flipout.Flipout(reuse_signs=True)]
)
def test_other_schemes_take_the_long_way(scheme: Any, products: list[str]) -> None:
    model, x = usual(scheme=scheme)
    expected = step(model, x)
    torch.testing.assert_close(step(model, x), expected, **EXACTLY)
    assert not products


def no_gradient(model: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x)


def eagerly(model: Any, x: Tensor) -> Tensor:
    with choosing("eager"):
        return model(x)


def by_rows(model: Any, x: Tensor) -> Tensor:
    return torch.func.vmap(model, randomness="same")(x.unsqueeze(0).repeat(2, *[1] * x.dim()))


CALLS = {"no gradient": no_gradient, "eager": eagerly, "vmap": by_rows}


@pytest.mark.parametrize("call", CALLS)
def test_unusual_calls_take_the_long_way(call: str, products: list[str]) -> None:
    model, x = usual()
    step(model, x)
    outputs = []
    for _ in range(2):
        torch.manual_seed(4)
        with choosing("triton" if call == "no gradient" else "auto"):
            outputs.append(CALLS[call](model, x))
        forget(model)
    torch.testing.assert_close(*outputs, **EXACTLY)
    assert "short" not in products


@pytest.mark.parametrize("context", [flipout.hold, flipout.sampling, lambda m: flipout.using(m, scheme="shared")])
def test_contexts_take_the_long_way(context: Callable[[nn.Module], Any], products: list[str]) -> None:
    model, x = usual()
    step(model, x)
    with context(model):
        step(model, x)
    assert not products


def test_a_weight_of_another_dtype_or_shape_takes_the_long_way(products: list[str]) -> None:
    model: Any
    model, x = usual()
    step(model, x)
    model[0].weight.data = torch.zeros(7, 5, device=DEVICE)
    model[0].weight_rho.data = torch.zeros(7, 5, device=DEVICE)
    model[0].bias, model[0].out_features = None, 7
    assert step(model, x)[0].shape == (6, 7)
    assert "short" not in products


def test_a_fold_is_refused_after_a_remembered_call() -> None:
    class Folding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.reshape(-1, 5))

    model = flipout.perturb(Folding().to(DEVICE), flipout.Gaussian(0.5))
    x = torch.randn(6, 5, device=DEVICE)
    step(model, x)
    assert isinstance(remembered_calls(model)[0], FusedCall)
    with pytest.raises(flipout.errors.ExampleCount, match="6 rows"):
        step(model, x.view(3, 2, 5))


def test_both_ways_save_the_same_tensors_in_the_same_order() -> None:
    """A checkpoint runs forward one way, recomputes the other way, and pairs the saved tensors by position."""
    model, x = usual("convolution")
    runs = []
    for _ in range(2):
        saved: list[Tensor] = []
        torch.manual_seed(3)
        keep = torch.autograd.graph.saved_tensors_hooks(
            lambda t, to=saved: to.append(t.detach().clone()) or t, lambda t: t
        )
        with choosing("triton"), keep:
            model(x)
        runs.append(saved)
    torch.testing.assert_close(runs[1], runs[0], **EXACTLY)
    assert isinstance(remembered_calls(model)[0], FusedCall)
