"""EmbeddingDropout: whole words, all their occurrences in a call."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout.regularizers import EmbeddingDropout, embedding_dropout
from tests.statistics import assert_mean, assert_probability

HEIGHT = 50


def factors(y: Tensor, plain: Tensor) -> Tensor:
    """Return the factor of each occurrence, which all its features share."""
    factor = y / plain
    torch.testing.assert_close(factor, factor[..., :1].expand_as(factor))
    return factor[..., 0]


@pytest.mark.parametrize("padding_idx", [None, 3, -1])
def test_the_masked_table_is_looked_up(padding_idx: int | None, drawn: list[Tensor]) -> None:
    layer = EmbeddingDropout(HEIGHT, 4, padding_idx, p=0.3, dtype=torch.float64)
    nn.init.normal_(layer.weight)  # so that a padding row that is touched would show
    words = torch.randint(HEIGHT, (7, 9))
    y = layer(words)
    (mask,) = drawn
    if padding_idx is not None:
        mask = mask.index_fill(0, torch.tensor(padding_idx % HEIGHT), 1.0)
    truth = nn.functional.embedding(words, layer.weight * mask, layer.padding_idx)
    upstream = torch.randn_like(y)
    torch.testing.assert_close(y, truth)
    (got,), (expected,) = (torch.autograd.grad(ys, layer.weight, upstream) for ys in (y, truth))
    torch.testing.assert_close(got, expected)
    if padding_idx is not None:
        assert not got[padding_idx].any()


def test_a_word_is_dropped_wherever_it_occurs() -> None:
    layer = EmbeddingDropout(HEIGHT, 4, p=0.3)
    words = torch.arange(HEIGHT).repeat(6, 1)
    drops = 0
    for _ in range(40):
        factor = factors(layer(words), layer.weight.expand(6, -1, -1))
        assert torch.equal(factor, factor[:1].expand_as(factor))
        drops += int((factor[0] == 0).sum())
    assert_probability(drops, 40 * HEIGHT, 0.3)


def test_the_mean_is_the_table() -> None:
    layer, words = EmbeddingDropout(HEIGHT, 2, p=0.1, dtype=torch.float64), torch.arange(HEIGHT)
    with torch.no_grad():
        assert_mean(torch.stack([layer(words) for _ in range(4000)]), layer.weight)


def test_the_function_is_the_layer() -> None:
    layer, words = EmbeddingDropout(HEIGHT, 4, 0, p=0.3), torch.randint(HEIGHT, (5, 6))
    plain = nn.Embedding(HEIGHT, 4, 0)
    plain.load_state_dict(layer.state_dict())
    layer.load_state_dict(plain.state_dict())
    torch.manual_seed(2)
    y = layer(words)
    torch.manual_seed(2)
    assert torch.equal(y, embedding_dropout(plain, words, 0.3))
    assert torch.equal(plain(words), embedding_dropout(plain, words, 0.3, training=False))
    assert torch.equal(plain(words), embedding_dropout(plain, words, 0.0))
    assert torch.equal(plain(words), layer.eval()(words))


def test_sparse_gradients_stay_sparse() -> None:
    layer = EmbeddingDropout(HEIGHT, 4, p=0.3, sparse=True)
    layer(torch.tensor([1, 2, 1])).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.is_sparse


@pytest.mark.parametrize("p", [1.0, -0.1, float("nan"), "0.5"])
def test_bad_probabilities(p: Any) -> None:
    with pytest.raises(
        flipout.errors.InvalidArgument, match=r"EmbeddingDropout: p=.* given; expected a probab.*p=0 to"
    ):
        EmbeddingDropout(HEIGHT, 4, p=p)
    with pytest.raises(
        flipout.errors.InvalidArgument, match=r"Embedding: p=.* given; expected a probability in \[0, 1\)"
    ):
        embedding_dropout(nn.Embedding(HEIGHT, 4), torch.tensor([1]), p)
    with pytest.raises(flipout.errors.InvalidArgument, match=r"LockedDropout: p=.* given"):
        flipout.regularizers.LockedDropout(p)


def test_what_it_says_of_itself() -> None:
    assert str(EmbeddingDropout(5, 4, 1, p=0.1)) == "EmbeddingDropout(5, 4, padding_idx=1, p=0.1)"
    assert str(flipout.regularizers.LockedDropout(0.4)) == "LockedDropout(p=0.4, batch_first=False)"


def test_a_perturbed_table_keeps_its_noise() -> None:
    model = flipout.perturb(nn.Sequential(nn.Embedding(5, 3)), flipout.Gaussian(1.0), where="*")
    words = torch.tensor([[0, 1, 2]])
    with flipout.hold(model, seed=1):
        assert torch.equal(model[0](words), embedding_dropout(model[0], words, 0.0))  # pyright: ignore[reportArgumentType]
