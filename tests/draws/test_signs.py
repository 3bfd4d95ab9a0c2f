"""Signs: access in any order, and their statistics."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from flipout.draws import signs as signs_module
from flipout.draws.signs import sign_at, sign_masks, sign_words, unpack
from flipout.nn.base import parameter_key
from tests.draws.devices import without_numpy
from tests.statistics import assert_frequencies, assert_mean, assert_probability, assert_uncorrelated

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
KEY = parameter_key("layer.weight")


def signs(seed: int, key: int, over: list[tuple[int, int]], first: int, count: int, dtype: torch.dtype) -> list[Tensor]:
    words = sign_words(torch.tensor(seed), key, over, first, count)
    return [unpack(word, features, dtype) for word, (_, features) in zip(words, over, strict=True)]


def sign_matrix(
    seed: int = 0,
    key: int = KEY,
    dim: int = 0,
    first: int = 0,
    count: int = 4096,
    features: int = 160,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    (drawn,) = signs(seed, key, [(dim, features)], first, count, dtype)
    return drawn


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**61 - 1),
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 300)), min_size=1, max_size=3),
    st.integers(0, 2**32 - 20),
    st.integers(0, 20),
    st.integers(1, 25),
    st.sampled_from(DTYPES),
)
def test_numpy_and_torch_draw_the_same_signs(seed, key, over, first, count, batch_rows, dtype) -> None:
    """As numbers and as masks of sign bits."""
    with without_numpy():
        words = sign_words(torch.tensor(seed), key, over, first, count)
        expected = [[form(w, size, dtype) for w, (_, size) in zip(words, over)] for form in (unpack, sign_masks)]  # noqa: B905
    for masks in (False, True):
        pieces = list(signs_module.sign_batches(torch.tensor(seed), key, over, first, count, dtype, masks, batch_rows))
        assert len(pieces) == max(-(-count // batch_rows), 1)
        for j in range(len(over)):
            assert torch.equal(torch.cat([piece[j] for piece in pieces]), expected[masks][j])


@pytest.mark.parametrize("dim", [0, 1])
def test_a_single_sign_equals_its_entry_of_the_matrix(dim: int) -> None:
    whole = sign_matrix(seed=-5, dim=dim, first=70, count=9, features=300)
    example, feature = torch.arange(70, 79).unsqueeze(1), torch.arange(300)
    assert torch.equal(sign_at(torch.tensor(-5), KEY, dim, example, feature, torch.float32), whole)
    assert sign_at(torch.tensor(-5), KEY, dim, torch.tensor(75), torch.tensor(257), torch.float32) == whole[5, 257]


def test_parts_of_the_matrix_equal_the_whole() -> None:
    whole = sign_matrix(count=40, features=300)
    for first, count, features in ((0, 40, 1), (7, 12, 300), (39, 1, 129), (0, 3, 128), (5, 0, 10)):
        part = sign_matrix(first=first, count=count, features=features)
        assert torch.equal(part, whole[first : first + count, :features])
    for drawn, dim, features in zip(
        signs(0, KEY, [(1, 200), (0, 300)], 0, 40, torch.float32), (1, 0), (200, 300), strict=True
    ):
        assert torch.equal(drawn, sign_matrix(dim=dim, count=40, features=features))


@pytest.mark.parametrize("dtype", DTYPES)
def test_signs_are_exactly_one_in_every_dtype(dtype: torch.dtype) -> None:
    drawn = sign_matrix(seed=3, dtype=dtype)
    assert drawn.dtype == dtype
    assert set(drawn.unique().tolist()) == {-1.0, 1.0}
    assert torch.equal(drawn.float(), sign_matrix(seed=3))


def test_bits_are_uniform() -> None:
    positive = sign_matrix(count=8192) > 0
    assert_probability(int(positive.sum()), positive.numel(), 0.5)
    assert_mean(positive, 0.5, std=0.5)  # of each feature
    assert_mean(sign_matrix(count=160, features=4096).T, 0.0, std=1.0)  # of each example
    byte = (positive.view(8192, 20, 8) * 2 ** torch.arange(8)).sum(-1)
    assert_frequencies(torch.bincount(byte.flatten(), minlength=256))


def test_signs_are_uncorrelated() -> None:
    drawn = sign_matrix()
    assert_uncorrelated(drawn)  # over features
    assert_uncorrelated(sign_matrix(count=160, features=4096).T)  # over examples
    assert_uncorrelated(drawn, sign_matrix(dim=1))
    assert_uncorrelated(drawn, sign_matrix(first=4096))
    for key in (parameter_key("layer.bias"), KEY ^ 1, KEY ^ 1 << 60):
        assert_uncorrelated(drawn, sign_matrix(key=key))
    for seed in (1, -1, 2**32, 2**62):
        assert_uncorrelated(drawn, sign_matrix(seed=seed))


def test_rank_one_sign_matrices_are_uncorrelated() -> None:
    r, s = sign_matrix(features=12), sign_matrix(dim=1, features=12)
    assert_uncorrelated((r.unsqueeze(2) * s.unsqueeze(1)).flatten(1))
