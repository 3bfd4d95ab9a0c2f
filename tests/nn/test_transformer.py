"""Converted transformers equal a loop over examples."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import flipout
from flipout.schemes import SchemeName
from tests.oracles import Case, Draws, check, draws, equal, loop, offsets, tensor

WIDTH, HEADS, WORDS = 4, 2, 6
wheres = st.sampled_from([None, "*", "*norm*", "*bias"])


def options(batch_first: bool, norm_first: bool) -> dict[str, Any]:
    return {
        "dim_feedforward": 3,
        "dropout": 0.0,
        "activation": "gelu",
        "batch_first": batch_first,
        "norm_first": norm_first,
    }


def sequence(batch_first: bool, rows: int, length: int) -> Tensor:
    return tensor(*((rows, length) if batch_first else (length, rows)), WIDTH)


def causal(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).triu(1)


def padding(rows: int, length: int) -> Tensor:
    hidden = torch.rand(rows, length) < 0.3
    hidden[:, 0] = False
    return hidden


class Wrapper(nn.Module):
    """Wraps the transformer, so that it is not the root itself, whose hooks would switch torch's fast path off."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


@settings(max_examples=20)
@given(batch_first=st.booleans(), norm_first=st.booleans(), where=wheres, draw=draws, offset=offsets)
def test_encoder_layer(batch_first: bool, norm_first: bool, where: Any, draw: Draws, offset: int) -> None:
    module = nn.TransformerEncoderLayer(WIDTH, HEADS, **options(batch_first, norm_first))
    rows, dim = draw.rows * 3, 0 if batch_first else 1
    inputs = (sequence(batch_first, rows, 3), causal(3), padding(rows, 3))
    check(Case(Wrapper(module), inputs, (dim, None, 0), (dim,), where=where), draw, offset)


@settings(max_examples=20)
@given(batch_first=st.booleans(), norm_first=st.booleans(), where=wheres, draw=draws, offset=offsets)
def test_decoder_layer(batch_first: bool, norm_first: bool, where: Any, draw: Draws, offset: int) -> None:
    module = nn.TransformerDecoderLayer(WIDTH, HEADS, **options(batch_first, norm_first))
    rows, dim = draw.rows * 3, 0 if batch_first else 1

    def call(f: Any, x: Tensor, memory: Tensor, hidden: Tensor) -> Tensor:
        return f(x, memory, tgt_mask=causal(3), memory_key_padding_mask=hidden)

    inputs = (sequence(batch_first, rows, 3), sequence(batch_first, rows, 2), padding(rows, 2))
    check(Case(Wrapper(module), inputs, (dim, dim, 0), (dim,), call, where), draw, offset)


@settings(max_examples=10)
@given(batch_first=st.booleans(), norm_first=st.booleans(), where=wheres, draw=draws, offset=offsets)
def test_whole_transformer(batch_first: bool, norm_first: bool, where: Any, draw: Draws, offset: int) -> None:
    encoder_layer = nn.TransformerEncoderLayer(WIDTH, HEADS, **options(batch_first, norm_first))
    encoder = nn.TransformerEncoder(encoder_layer, 1, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
    shared = options(batch_first, norm_first)
    module = nn.Transformer(WIDTH, HEADS, num_decoder_layers=2, custom_encoder=encoder, **shared)
    rows, dim = draw.rows * 2, 0 if batch_first else 1
    inputs = (sequence(batch_first, rows, 2), sequence(batch_first, rows, 3))
    check(Case(Wrapper(module), inputs, (dim, dim), (dim,), where=where), draw, offset)


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


class LanguageModel(nn.Module):
    """Embedding, encoder and a decoder tied to the embedding, over (T, N) or (N, T)."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, **options(batch_first, False))
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.decoder = nn.Linear(WIDTH, WORDS)
        self.decoder.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(self.embedding(x), mask=causal(3), is_causal=True))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("offset", range(8))
def test_language_model(batch_first: bool, offset: int) -> None:
    dim = 0 if batch_first else 1
    x = torch.randint(WORDS, (4, 3) if batch_first else (3, 4))
    case = Case(LanguageModel(batch_first), (x,), (dim,), (dim,), where="*", batch_dim=dim)
    check(case, Draws(first=offset, rows=1 + offset % 2), offset)


@pytest.mark.parametrize("scheme", ["shared", "flipout", "independent"])
def test_the_fast_path_keeps_the_noise(scheme: SchemeName) -> None:
    """In eval mode without gradients, torch's transformers would read the means instead of calling the layers."""
    module = nn.TransformerEncoderLayer(WIDTH, HEADS, **options(True, False)).double().eval()
    case = Case(module, (tensor(3, 2, WIDTH),))
    model = nn.TransformerEncoderLayer(WIDTH, HEADS, **options(True, False)).double().eval()
    model.load_state_dict(module.state_dict())
    flipout.perturb(model, flipout.Gaussian(0.3), scheme=scheme)
    with torch.no_grad():
        mean = model(*case.inputs)
        with flipout.hold(model):
            equal([model(*case.inputs)], loop(case, model))
            assert not torch.allclose(model(*case.inputs), mean)
        with flipout.sampling(model):
            assert not torch.allclose(model(*case.inputs), mean)
        assert torch.equal(model(*case.inputs), module(*case.inputs))
