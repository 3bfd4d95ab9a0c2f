"""Small inputs on a CPU: a remembered call computes what the long way computes, and keeps the same tensors."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout.nn.remembered_small import SmallCall
from flipout.schemes import SchemeName
from tests.nn.test_remembered_call import LAYERS, NOISES, SCHEMES, remembered_calls, step


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
    expected = step(model, x)  # the long way
    is_remembered = scheme in ("flipout", "shared", flipout.Flipout(group=8))
    assert all(isinstance(call, SmallCall) == is_remembered for call in remembered_calls(model))
    torch.testing.assert_close(step(model, x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("scheme", ["flipout", "shared"])
@pytest.mark.parametrize("layer", LAYERS)
def test_both_ways_save_the_same_tensors_in_the_same_order(layer: str, scheme: SchemeName) -> None:
    """A checkpoint runs forward one way, recomputes the other way, and pairs the saved tensors by position."""
    make, shape = LAYERS[layer]
    model = flipout.perturb(nn.Sequential(make(), nn.Tanh()), flipout.MeanField(std=0.3), scheme=scheme)
    x, runs = torch.randn(shape, requires_grad=True), []
    for _ in range(2):
        saved: list[Tensor] = []
        torch.manual_seed(3)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, to=saved: to.append(t.detach().clone()) or t, lambda t: t
        ):
            model(x)
        runs.append(saved)
    assert all(call is not None for call in remembered_calls(model))
    torch.testing.assert_close(runs[1], runs[0], rtol=0, atol=0)


def test_tied_kernels_with_other_groups() -> None:
    """The two kernels need signs over different numbers of channels."""

    class Net(nn.Module):
        def __init__(self, *, wide_first: bool) -> None:
            super().__init__()
            wide, narrow = nn.Conv2d(4, 4, 3, groups=4, padding=1), nn.Conv2d(1, 4, 3, padding=1)
            narrow.weight = wide.weight
            self.layers = nn.ModuleDict({"a": wide, "b": narrow} if wide_first else {"b": narrow, "a": wide})

        def forward(self, x: Tensor) -> Tensor:
            return self.layers["a"](self.layers["b"](x))

    for wide_first in (True, False):
        model = flipout.perturb(Net(wide_first=wide_first).double(), flipout.Gaussian(0.3))
        x = torch.randn(3, 1, 5, 5, dtype=torch.float64)
        torch.manual_seed(1)
        seed = int(torch.randint(2**63 - 1, ()))
        model(x)
        torch.manual_seed(1)
        drawn = model(x)
        with flipout.hold(model, seed=seed):
            torch.testing.assert_close(model(x), drawn, rtol=0, atol=1e-13)
            a, b = (flipout.example_weights(model.layers[name])["weight"] for name in "ab")
        for n in range(3):
            y = nn.functional.conv2d(x[n : n + 1], b[n], model.layers["b"].bias, padding=1)  # pyright: ignore
            y = nn.functional.conv2d(y, a[n], model.layers["a"].bias, padding=1, groups=4)  # pyright: ignore
            torch.testing.assert_close(drawn[n : n + 1], y, rtol=0, atol=1e-12)


def test_a_weight_whose_data_gets_another_shape_is_followed() -> None:
    model: Any = flipout.perturb(nn.Sequential(nn.Linear(6, 1, bias=False)), flipout.Gaussian(0.3))
    x = torch.randn(4, 6)
    for _ in range(2):
        model(x)
    model[0].weight.data, model[0].out_features = torch.zeros(5, 6), 5
    outputs = []
    for _ in range(3):
        torch.manual_seed(1)
        outputs.append(model(x))
        assert len(outputs[-1][0].unique()) == 5
    torch.manual_seed(1)
    with flipout.hold(model, seed=int(torch.randint(2**63 - 1, ()))):
        torch.testing.assert_close(model(x), outputs[-1])


@pytest.mark.parametrize("scheme", ["flipout", "shared"])
def test_a_layer_by_hand_makes_its_noise_at_once_too(scheme: SchemeName) -> None:
    layer = flipout.nn.Linear(5, 4, distribution=flipout.MeanField(std=0.3), scheme=scheme)
    x = torch.randn(6, 5)
    y = step(layer, x)[0]
    assert layer.flipout.own_roster is not None
    torch.manual_seed(3)
    with flipout.hold(layer, seed=int(torch.randint(2**63 - 1, ()))):
        torch.testing.assert_close(layer(x), y, rtol=0, atol=0)
        weight = flipout.example_weights(layer)["weight"]
    torch.testing.assert_close(y, torch.einsum("noi,ni->no", weight, x) + layer.bias)


@pytest.mark.parametrize("scheme", ["flipout", "shared"])
def test_a_later_group_of_examples(scheme: SchemeName) -> None:
    """Under flipout its base is its own. Examples that share one weight have the first base in every chunk."""
    layer = nn.Linear(5, 4)
    model, x = flipout.perturb(nn.Sequential(layer), flipout.Gaussian(0.3), scheme=scheme), torch.randn(2, 5)
    with flipout.hold(model, seed=1, first=6, group=3):
        outputs = [model(x) for _ in range(3)]
        weight = flipout.example_weights(layer)["weight"]
    assert remembered_calls(model) != [None]
    for y in outputs:
        torch.testing.assert_close(y, torch.einsum("noi,ni->no", weight, x) + layer.bias)
