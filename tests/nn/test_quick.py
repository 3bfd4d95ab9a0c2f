"""The usual call, remembered: what it computes is what the long way computes, and whatever is unusual takes that."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout.nn.quick import Quick
from tests.networks import gradients

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(5, 4), (6, 5)),
    "no bias": (lambda: nn.Linear(5, 4, bias=False), (6, 5)),
    "tokens": (lambda: nn.Linear(5, 4), (6, 3, 5)),
    "convolution": (lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2), (6, 4, 5, 5)),
    "strided": (lambda: nn.Conv1d(3, 2, 3, stride=2), (6, 3, 9)),
}
NOISES = {
    "gaussian": flipout.Gaussian(0.3),
    "multiplicative": flipout.MultiplicativeGaussian(0.5),
    "mean field": flipout.MeanField(std=0.3),
}
SCHEMES = ["flipout", "shared", flipout.Flipout(group=8), flipout.Flipout(group=2), "independent", "local_reparam"]
X = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


def quick_of(model: Any) -> list[Quick | None]:
    return [layer.plan.quick for layer in model.modules() if isinstance(layer, flipout.nn.Perturbed)]


def forget(model: nn.Module) -> None:
    for layer in model.modules():
        if isinstance(layer, flipout.nn.Perturbed):
            layer.plan.quick = None


def step(model: nn.Module, x: Tensor) -> list[Tensor]:
    """Output and all gradients, of one draw."""
    model.zero_grad()
    leaf = x.clone().requires_grad_()
    torch.manual_seed(3)
    y = model(leaf)
    y.sin().sum().backward()
    assert leaf.grad is not None
    return [y.detach(), leaf.grad, *gradients(model).values()]


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_it_computes_what_the_long_way_does(layer: str, noise: str, scheme: Any, dtype: torch.dtype) -> None:
    make, shape = LAYERS[layer]
    if scheme == "local_reparam" and len(shape) > 2:
        scheme = flipout.LocalReparam(per_position=True)
    model = flipout.perturb(nn.Sequential(make(), nn.Tanh()).to(dtype), NOISES[noise], scheme=scheme)
    x = torch.randn(shape, dtype=dtype)
    long = step(model, x)
    served = scheme in ("flipout", "shared", flipout.Flipout(group=8))
    assert all((quick is not None) == served for quick in quick_of(model))
    torch.testing.assert_close(step(model, x), long, rtol=0, atol=0)


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    model = flipout.perturb(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), flipout.MeanField(std=0.3))
    step(model, X)
    assert all(quick is not None for quick in quick_of(model))
    return model


def unusual(change: Callable[[Any], Any], x: Tensor = X) -> tuple[Callable[[Any], Any], Tensor]:
    return change, x


def eval_half(model: Any) -> None:
    model[2].eval()


def retie(model: Any) -> None:
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())


def prune(model: Any) -> None:
    model[0].weight.data[0] = 0


CHANGES = {
    "another batch": unusual(lambda model: None, torch.randn(5, 4)),
    "tokens": unusual(lambda model: None, torch.randn(6, 2, 4)),
    "a new parameter": unusual(retie),
    "part of it in eval": unusual(eval_half),
    "double precision": unusual(lambda model: model.double(), X.double()),
    "pruned in place": unusual(prune),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changed_is_seen(model: nn.Sequential, name: str) -> None:
    change, x = CHANGES[name]
    change(model)
    made = step(model, x)
    forget(model)
    torch.testing.assert_close(step(model, x), made, rtol=0, atol=0)


@pytest.mark.parametrize("context", [flipout.hold, flipout.sampling, lambda m: flipout.using(m, scheme="shared")])
def test_contexts_take_the_long_way(model: nn.Sequential, context: Callable[[nn.Module], Any]) -> None:
    other = copy.deepcopy(model)
    forget(other)
    made = []
    for each in (model, other):
        torch.manual_seed(5)
        with context(each):
            made.append(step(each, X))
    torch.testing.assert_close(made[0], made[1], rtol=0, atol=0)


def test_autocast_takes_the_long_way(model: nn.Sequential) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert model(X).dtype == torch.bfloat16


def test_another_number_of_examples_is_refused_as_ever(model: nn.Sequential) -> None:
    model.forward = lambda x: model[2](model[0](x)[:4])  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(flipout.errors.ExampleCount, match=r"2 \(Linear\)"):
        model(X)


def test_wrong_inputs_are_refused_as_ever(model: nn.Sequential) -> None:
    with pytest.raises(flipout.errors.InvalidInput, match="in_features=4"):
        model(torch.randn(6, 5))
    with pytest.raises(flipout.errors.InvalidInput, match="expected a tensor"):
        model([1.0])


def test_a_layer_called_twice_has_one_draw(model: nn.Sequential) -> None:
    model.forward = lambda x: (model[0](x), model[0](x))  # pyright: ignore[reportAttributeAccessIssue]
    one, two = model(X)
    assert torch.equal(one, two)
    assert not torch.equal(one, model(X)[0])
