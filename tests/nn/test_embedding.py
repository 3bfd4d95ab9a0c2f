"""Embeddings, bags and tied decoders equal a loop over examples."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import flipout
from tests.oracles import Case, Draws, check, draws, offsets, tensor

HEIGHT = 5


def indices(*shape: int) -> Tensor:
    return torch.randint(HEIGHT, shape)


paddings = st.sampled_from([None, 0, 2, -1])


@st.composite
def embeddings(draw: Any, rows: int) -> Case:
    module = nn.Embedding(HEIGHT, draw(st.integers(1, 4)), padding_idx=draw(paddings))
    leading = draw(st.lists(st.integers(1, 4), max_size=2))  # fewer indices than the table has rows, or more
    batch_dim = draw(st.integers(0, len(leading)))
    leading.insert(batch_dim, rows * draw(st.integers(1, 5)))
    x = indices(*leading).to(draw(st.sampled_from([torch.int64, torch.int32])))
    return Case(module, (x,), (batch_dim,), (batch_dim,), where="weight", batch_dim=batch_dim)


@settings(max_examples=60)
@given(data=st.data(), draw=draws, offset=offsets)
def test_embeddings(data: st.DataObject, draw: Draws, offset: int) -> None:
    check(data.draw(embeddings(draw.rows)), draw, offset)


@pytest.mark.parametrize("offset", range(8))
def test_unbatched(offset: int) -> None:
    module = nn.Embedding(HEIGHT, 3, padding_idx=1)
    check(Case(module, (torch.tensor(2),), (None,), where="weight"), Draws(3), offset)
    check(Case(module, (torch.tensor(2),), (None,), where="weight", batch_dim=1), Draws(3), offset)


def flat_call(last: bool, kind: torch.dtype) -> Any:
    def call(f: Any, bags: list[Tensor], weights: list[Tensor] | None) -> Tensor:
        ends = torch.tensor([0, *(len(bag) for bag in bags)], dtype=kind).cumsum(0, dtype=kind)
        flat = torch.cat(bags).to(kind)
        return f(flat, ends if last else ends[:-1], None if weights is None else torch.cat(weights))

    return call


def square_call(f: Any, bags: Tensor, weights: Tensor | None) -> Tensor:
    return f(bags, None, weights)


@st.composite
def bags(draw: Any, rows: int) -> Case:
    mode = draw(st.sampled_from(["sum", "mean", "max"]))
    last, weighted = draw(st.booleans()), mode == "sum" and draw(st.booleans())
    width, padding = draw(st.integers(1, 3)), draw(paddings)
    module = nn.EmbeddingBag(HEIGHT, width, mode=mode, padding_idx=padding, include_last_offset=last)
    count = rows * draw(st.integers(1, 5))
    if draw(st.integers(0, 2)) == 0:
        shape = count, draw(st.integers(1, 4))
        inputs = indices(*shape), tensor(*shape) if weighted else None
        return Case(module, inputs, (0, 0 if weighted else None), call=square_call, where="weight")
    sizes = [draw(st.integers(0, 4)) for _ in range(count)]
    weights = [tensor(size) for size in sizes] if weighted else None
    dims = (0, 0 if weighted else None)
    call = flat_call(last, draw(st.sampled_from([torch.int64, torch.int32])))
    return Case(module, ([indices(size) for size in sizes], weights), dims, call=call, where="weight")


@settings(max_examples=100)
@given(data=st.data(), draw=draws, offset=offsets)
def test_bags(data: st.DataObject, draw: Draws, offset: int) -> None:
    check(data.draw(bags(draw.rows)), draw, offset)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_empty_bags(mode: str) -> None:
    call = flat_call(False, torch.int64)
    empty = [torch.empty(0, dtype=torch.int64)] * 3
    check(Case(nn.EmbeddingBag(HEIGHT, 2, mode=mode), (empty, None), (0, None), call=call, where="weight"))
    only_padding = [torch.zeros(2, dtype=torch.int64)] * 3
    module = nn.EmbeddingBag(HEIGHT, 2, mode=mode, padding_idx=0)
    check(Case(module, (only_padding, None), (0, None), call=call, where="weight"))


class Tied(nn.Module):
    """An embedding and a decoder with one table, as in a language model."""

    def __init__(self, padding: int | None, bias: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(HEIGHT, 3, padding_idx=padding)
        self.decoder = nn.Linear(3, HEIGHT, bias=bias)
        self.decoder.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.embedding(x).tanh())


@settings(max_examples=24)
@given(padding=paddings, bias=st.booleans(), where=st.sampled_from([None, "*"]), draw=draws, offset=offsets)
def test_tied_decoders(padding: int | None, bias: bool, where: str | None, draw: Draws, offset: int) -> None:
    check(Case(Tied(padding, bias), (indices(draw.rows * 4, 3),), where=where), draw, offset)


@pytest.mark.parametrize("scheme", ["shared", "flipout", flipout.Flipout(group=2), "independent"])
def test_tied_layers_see_the_same_weights(scheme: Any) -> None:
    model = flipout.perturb(Tied(0, True), flipout.Gaussian(0.3), scheme=scheme, where="embedding.weight")
    with flipout.hold(model):
        model(indices(4, 3))
        table, kernel = (flipout.example_weights(part)["weight"] for part in (model.embedding, model.decoder))
        assert torch.equal(table, kernel)
        assert torch.equal(table[:, 0], model.embedding.weight[0].expand(4, -1))
        assert (table[:, 1:] != model.embedding.weight[1:]).all()


def by_hand(kind: Any, scheme: Any) -> nn.Module:
    return kind(HEIGHT, 3, padding_idx=2, distribution=flipout.Gaussian(0.3), scheme=scheme, where="weight")


def converted(kind: Any, scheme: Any) -> nn.Module:
    plain = kind._plain_type(HEIGHT, 3, padding_idx=2)
    return flipout.perturb(plain, flipout.Gaussian(0.3), scheme=scheme, where="weight")


@pytest.mark.parametrize("make", [by_hand, converted])
@pytest.mark.parametrize("kind", [flipout.nn.Embedding, flipout.nn.EmbeddingBag])
@pytest.mark.parametrize("scheme", ["shared", "flipout", "independent"])
def test_the_padding_row_is_never_perturbed(make: Any, kind: Any, scheme: Any) -> None:
    layer: Any = make(kind, scheme)
    with flipout.hold(layer):
        layer(indices(4, 2))
        seen = flipout.example_weights(layer)["weight"]
        padded = layer(torch.full((4, 1), 2))
    assert torch.equal(seen[:, 2], layer.weight[2].expand(4, -1))
    expected = torch.zeros(3) if kind is flipout.nn.EmbeddingBag else layer.weight[2]  # a bag leaves its padding out
    assert torch.equal(padded.reshape(4, 3), expected.expand(4, -1))


@pytest.mark.parametrize("make", [by_hand, converted])
def test_the_padding_row_learns_nothing(make: Any) -> None:
    layer = make(flipout.nn.Embedding, "flipout")
    layer(indices(40)).sum().backward()
    assert not layer.weight.grad[2].any()
    assert layer.weight.grad[[0, 1, 3, 4]].all()


def test_ties_of_the_maximum_follow_torch() -> None:
    """The gradient goes to the first of several equal maxima. ±std noise on equal weights makes such ties."""
    module = nn.EmbeddingBag.from_pretrained(torch.zeros(HEIGHT, 4), freeze=False, mode="max").double()
    check(Case(module, (indices(20, 4), None), (0, None), call=square_call, where="weight"), Draws(), 3)


def test_bad_bags_are_named() -> None:
    last = nn.EmbeddingBag(HEIGHT, 3, include_last_offset=True)
    bad: list[tuple[nn.Module, tuple]] = [
        (nn.EmbeddingBag(HEIGHT, 3), (indices(4), torch.tensor([1, 2]))),
        (nn.EmbeddingBag(HEIGHT, 3), (indices(4), torch.tensor([0, 7]))),
        (nn.EmbeddingBag(HEIGHT, 3), (indices(4), torch.tensor([0, 3, 1]))),
        (nn.EmbeddingBag(HEIGHT, 3), (indices(4),)),
        (nn.EmbeddingBag(HEIGHT, 3), (indices(4, 2), torch.tensor([0, 1]))),
        (last, (indices(4), torch.tensor([0, 3]))),
        (nn.EmbeddingBag(HEIGHT, 3), (indices(4, 2), None, torch.ones(4, 2))),
        (nn.EmbeddingBag(HEIGHT, 3, mode="sum"), (indices(4, 2), None, torch.ones(4, 2).double())),
        (nn.EmbeddingBag(HEIGHT, 3), (torch.randn(4, 2),)),
    ]
    for module, args in bad:
        layer = flipout.perturb(copy.deepcopy(module), flipout.Gaussian(0.3), where="weight")
        with pytest.raises(flipout.errors.InvalidInput, match="EmbeddingBag"):
            layer(*args)


def test_local_reparameterisation_of_tokens_is_refused() -> None:
    layer = flipout.nn.Embedding(HEIGHT, 3, distribution=flipout.Gaussian(0.3), scheme="local_reparam", where="weight")
    assert layer(indices(4)).shape == (4, 3)
    with pytest.raises(flipout.errors.SampledPerPosition):
        layer(indices(4, 2))
    with flipout.using(layer, scheme=flipout.LocalReparam(per_position=True)):
        assert layer(indices(4, 2)).isfinite().all()
    with pytest.raises(flipout.errors.Unsupported):
        by_hand(flipout.nn.EmbeddingBag, "local_reparam")
