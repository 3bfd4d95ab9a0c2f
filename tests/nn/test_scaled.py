"""Layers with scales equal a loop over examples, each with its own scales."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import flipout
from flipout.errors import InvalidInput
from tests.oracles import Case, Draws, check, draws, equal, offsets, tensor

sizes = st.integers(1, 4)
SCALES = ("input_scale", "output_scale")


def scrambled(layer: Any) -> Any:
    """Give the scales values other than 1."""
    for name in SCALES:
        nn.init.normal_(getattr(layer, name), 1.0, 0.5)
    return layer


@st.composite
def linears(draw: Any, rows: int) -> Case:
    module = scrambled(flipout.nn.ScaledLinear(draw(sizes), draw(sizes), bias=draw(st.booleans())))
    where = draw(st.sampled_from([None, "*", "weight", "output_scale"]))
    leading = draw(st.lists(sizes, max_size=2))
    batch_dim = draw(st.integers(0, len(leading)))
    leading.insert(batch_dim, rows * draw(st.integers(1, 4)))
    x = tensor(*leading, module.in_features)
    return Case(module, (x,), (batch_dim,), (batch_dim,), where=where, batch_dim=batch_dim)


@settings(max_examples=20)
@given(data=st.data(), draw=draws, offset=offsets)
def test_linear(data: st.DataObject, draw: Draws, offset: int) -> None:
    check(data.draw(linears(draw.rows)), draw, offset)


@pytest.mark.parametrize("spatial", [1, 2, 3])
@settings(max_examples=5)
@given(data=st.data(), draw=draws, offset=offsets)
def test_convolutions(spatial: int, data: st.DataObject, draw: Draws, offset: int) -> None:
    kind = (flipout.nn.ScaledConv1d, flipout.nn.ScaledConv2d, flipout.nn.ScaledConv3d)[spatial - 1]
    groups = data.draw(st.integers(1, 2))
    options = {
        "groups": groups,
        "bias": data.draw(st.booleans()),
        "padding": data.draw(st.integers(0, 1)),
        "padding_mode": data.draw(st.sampled_from(["zeros", "reflect"])),
    }
    module = scrambled(kind(groups * data.draw(sizes), groups * data.draw(sizes), 2, **options))
    where = data.draw(st.sampled_from([None, "*"]))
    x = tensor(draw.rows * data.draw(sizes), module.in_channels, *[3] * spatial)
    check(Case(module, (x,), where=where), draw, offset)


def test_the_plain_layer_is_r_W_s() -> None:
    layer = scrambled(flipout.nn.ScaledLinear(3, 2)).double()
    x = tensor(4, 3)
    weight = layer.output_scale[:, None] * layer.weight * layer.input_scale
    equal([layer(x)], [F.linear(x, weight, layer.bias)])


def test_a_new_layer_is_torchs_own_layer() -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(2, 3, 3, padding="same")
    torch.manual_seed(0)
    layer = flipout.nn.ScaledConv2d(2, 3, 3, padding="same")
    x = torch.randn(2, 2, 5, 5)
    torch.testing.assert_close(layer(x), plain(x))
    nn.init.zeros_(layer.input_scale)
    layer.reset_parameters()
    assert torch.equal(layer.input_scale, torch.ones(2))


def test_wrong_inputs_are_refused() -> None:
    layer = flipout.nn.RankOneLinear(3, 2, distribution=flipout.Gaussian(0.1))
    with pytest.raises(InvalidInput, match=r"RankOneLinear: input of shape \(4, 5\); expected \(…, 3\)"):
        layer(torch.randn(4, 5))
    convolution = flipout.nn.RankOneConv2d(3, 2, 2, distribution=flipout.Gaussian(0.1))
    with pytest.raises(InvalidInput, match=r"expected \(N, 3, …\)"):
        convolution(torch.randn(4, 2, 5, 5))


def test_compiled() -> None:
    layer = flipout.nn.RankOneLinear(3, 2, distribution=flipout.MeanField(std=0.3))
    x = torch.randn(4, 3)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with flipout.hold(layer, seed=3):
        torch.testing.assert_close(compiled(x), layer(x))
