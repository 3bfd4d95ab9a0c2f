"""The example's dimension: `batch_dim` as an int or by glob, or inferred from the transformer around a layer."""

from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout import errors
from tests.networks import encoder

GAUSSIAN = flipout.Gaussian(0.3)


def test_an_int_for_all_layers():
    model = flipout.perturb(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), GAUSSIAN, batch_dim=1)
    with flipout.hold(model, seed=1):
        expected = model(x := torch.randn(5, 3, 4))
        assert flipout.example_weights(model[1])["weight"].shape == (3, 2, 4)
    with flipout.hold(model, seed=1, first=1):
        torch.testing.assert_close(model(x[:, 1:]), expected[:, 1:])


def test_globs_of_layers():
    model: Any = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
    flipout.perturb(model, GAUSSIAN, batch_dim={"b": 1})
    x = torch.randn(5, 3, 4)
    counts = []
    for name in "ab":
        with flipout.hold(model[name]):
            model[name](x)
            counts.append(len(flipout.example_weights(model[name])["weight"]))
    assert counts == [5, 3]


@pytest.mark.parametrize(
    ("layer", "x", "where"),
    [
        (nn.Linear(4, 4), torch.randn(6, 4), None),
        (nn.LayerNorm(4), torch.randn(6, 4), "*"),
        (nn.Embedding(9, 4), torch.arange(6), "*"),
    ],
)
def test_a_dimension_that_the_input_does_not_have_is_refused(layer, x, where):
    """Otherwise the whole batch would be one example, and all rows would share a perturbation."""
    model = flipout.perturb(layer, GAUSSIAN, where=where, batch_dim=1)
    with pytest.raises(errors.InvalidInput, match=r"no dimension 1 for the example.*batch_dim"):
        model(x)


def test_a_glob_for_a_layer_with_a_fixed_layout_is_refused():
    with pytest.raises(errors.InvalidArgument, match=r"Conv2d, whose layout is \(N, C, …\)"):
        flipout.perturb(nn.Sequential(nn.Conv2d(3, 3, 1)), GAUSSIAN, batch_dim={"0": 1})


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("where", [None, "*"])
def test_transformers_know_their_batch_dim(batch_first, where):
    model = flipout.perturb(encoder(batch_first), GAUSSIAN, where=where)
    x = torch.randn(3, 5, 8)
    x = x if batch_first else x.transpose(0, 1)
    with flipout.hold(model, seed=1):
        expected = model(x)
        assert flipout.example_weights(model.layers[1].linear1)["weight"].shape == (3, 16, 8)
    with flipout.hold(model, seed=1, first=1):
        part = model(x[1:] if batch_first else x[:, 1:])
    torch.testing.assert_close(part, expected[1:] if batch_first else expected[:, 1:])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
def test_decoder_layers_and_whole_transformers():
    model = flipout.perturb(nn.Transformer(8, 2, 1, 1, 16, dropout=0.0), GAUSSIAN)
    model(torch.randn(5, 3, 8), torch.randn(4, 3, 8)).sum().backward()
    layer: Any = flipout.perturb(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), GAUSSIAN)
    assert layer.linear1.flipout.inherited_batch_dim == 0
    layer(torch.randn(3, 4, 8), torch.randn(3, 5, 8)).sum().backward()


def test_an_explicit_batch_dim_overrides_an_inferred_one():
    model = flipout.perturb(encoder(batch_first=True), GAUSSIAN, batch_dim={"*.linear1": 1})
    with pytest.raises(errors.ExampleCount):
        model(torch.randn(3, 5, 8))
