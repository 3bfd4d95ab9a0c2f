"""Layers inside torch's transformers know the dimension of the example."""

from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout import errors
from flipout.nn.transformer_layout import transformer_batch_dim
from tests.networks import GAUSSIAN, encoder
from tests.nn.transformers import HEADS, WIDTH, Wrapper, causal, options
from tests.oracles import Case, Draws, check, equal, tensor


def blocks(batch_first: bool, norm_first: bool) -> dict[str, tuple[nn.Module, int]]:
    """Return torch's transformers, and how many sequences each takes."""
    how = options(batch_first, norm_first)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, **how)
    stack = nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, HEADS, **how), 2, nn.LayerNorm(WIDTH))
    return {
        "encoder layer": (layer, 1),
        "encoder": (stack, 1),
        "decoder layer": (nn.TransformerDecoderLayer(WIDTH, HEADS, **how), 2),
        "decoder": (decoder, 2),
        "transformer": (nn.Transformer(WIDTH, HEADS, num_decoder_layers=1, custom_encoder=stack, **how), 2),
    }


@pytest.mark.parametrize("where", [None, "*", "*norm*", "*linear1.weight", "*linear2.*"])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("name", blocks(True, True))
def test_a_sequence_without_a_batch_is_one_example(name: str, batch_first: bool, where: Any) -> None:
    """All positions see the weights of one example, and the output equals a batch of one."""
    for offset, norm_first in enumerate((False, True)):
        module, count = blocks(batch_first, norm_first)[name]
        inputs = (tensor(3, WIDTH), tensor(2, WIDTH))[:count]
        case = Case(Wrapper(module), inputs, (None,) * count, where=where)
        check(case, Draws(first=5), offset)
        model = flipout.perturb(Wrapper(module).double(), flipout.Gaussian(0.3), where=where)
        dim = 0 if batch_first else 1
        with flipout.hold(model, seed=1):
            single = model(*inputs)
            equal([single], [model(*(x.unsqueeze(dim) for x in inputs)).squeeze(dim)])


@pytest.mark.parametrize("batch_first", [True, False])
def test_masks_of_a_sequence_without_a_batch(batch_first: bool) -> None:
    module = nn.TransformerEncoderLayer(WIDTH, HEADS, **options(batch_first, False))
    hidden = torch.tensor([False, False, True])
    inputs = (tensor(3, WIDTH), causal(3), hidden)
    check(Case(Wrapper(module), inputs, (None, None, None), where="*"), Draws(first=5), 1)


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


def test_only_transformers_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """To walk through every parent of every layer would take a time that grows with the square of the model."""
    searched: list[nn.Module] = []

    def walk(module: nn.Module) -> Any:
        searched.append(module)
        return original(module)

    original = nn.Module.modules
    block = nn.TransformerEncoderLayer(WIDTH, HEADS, batch_first=False)
    model = nn.ModuleDict({"block": block, "rest": nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3)))})
    monkeypatch.setattr(nn.Module, "modules", walk)
    assert [transformer_batch_dim(model, label) for label in ("rest.0", "rest.1.0", "block.linear1")] == [0, 0, 1]
    assert searched == [block]
