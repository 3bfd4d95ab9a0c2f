"""Converted transformers equal a loop over examples."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import flipout
from tests.nn.transformers import HEADS, WIDTH, WORDS, Wrapper, causal, options
from tests.oracles import Case, Draws, check, draws, offsets, tensor

wheres = st.sampled_from([None, "*", "*norm*", "*bias"])


def sequence(batch_first: bool, rows: int, length: int) -> Tensor:
    return tensor(*((rows, length) if batch_first else (length, rows)), WIDTH)


def padding(rows: int, length: int) -> Tensor:
    hidden = torch.rand(rows, length) < 0.3
    hidden[:, 0] = False
    return hidden


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


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
def test_an_unbatched_input_is_one_example(kind: Any, batch_first: bool) -> None:
    """Its tokens are the rows of the linear layers inside, and all of them see one weight."""
    layer = kind(WIDTH, HEADS, dtype=torch.float64, **options(batch_first, False))
    model, batch_dim = flipout.perturb(layer, flipout.Gaussian(0.3)), 0 if batch_first else 1
    x = torch.randn(5, WIDTH, dtype=torch.float64)

    def call(x: Tensor) -> Tensor:
        return model(x) if kind is nn.TransformerEncoderLayer else model(x, x)

    with flipout.hold(model, seed=1):
        alone = call(x)
    with flipout.hold(model, seed=1):
        torch.testing.assert_close(call(x.unsqueeze(batch_dim)).squeeze(batch_dim), alone)
    model.eval()
    assert not torch.allclose(call(x), alone)


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
