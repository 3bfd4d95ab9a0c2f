"""Signs by the kernel are those of the definition, to the bit."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from flipout._perturbation import Part, Signs
from flipout.backend import choosing
from flipout.draws.signs import packed_words, sign_batches
from tests.draws.test_signs import KEY
from tests.ops.triton.kernels import CLOSE, DEVICE, MARKS, SEEDS, assert_same, both

pytestmark = MARKS
DTYPES = tuple(CLOSE)


def assert_signs(seed: int, key: int, over: list[tuple[int, int]], first: int, count: int, *form) -> None:
    def draw(device: torch.device) -> list[Tensor]:
        return next(sign_batches(torch.tensor(seed, device=device), key, over, first, count, *form))

    for expected, actual in zip(*both(draw), strict=True):
        assert_same(expected, actual)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_signs_of_every_dtype_and_seed(dtype: torch.dtype, masks: bool, seed: int) -> None:
    assert_signs(seed, KEY, [(0, 300), (1, 129)], 7, 5, dtype, masks)


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**61 - 1),
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 140) | st.just(1)), min_size=1, max_size=2),
    st.integers(0, 2**32 - 10),
    st.integers(0, 9),
    st.sampled_from(DTYPES),
    st.booleans(),
)
def test_signs_of_any_shape(seed, key, over, first, count, dtype, masks) -> None:
    assert_signs(seed, key, over, first, count, dtype, masks)


@pytest.mark.parametrize("over", [[(0, 300), (1, 129)], [(2, 64)]], ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_packed_signs(seed: int, over: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipout.ops.triton.signs._WORDS", 16)
    expected, actual = both(lambda device: packed_words(torch.tensor(seed, device=device), KEY, over, 2**32 - 3, 5))
    assert_same(expected, actual)


@pytest.mark.parametrize("limit", [2**30, 0], ids=["int32", "int64"])
def test_many_programs_with_either_index_type(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipout.ops.triton.base._INT32_PLACES", limit)
    assert_signs(-3, KEY, [(0, 520), (1, 3)], 2**32 - 33, 33, torch.float32)


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("antithetic", [False, True])
def test_runs_of_part_of_a_parameter(masks: bool, antithetic: bool) -> None:
    stream = Signs(KEY, 5, 7, antithetic, Part(20, 10, 50))
    for chunk in (1, 3, 7, 100):
        expected, actual = both(
            lambda device, chunk=chunk: list(
                stream.runs([(0, 10), (1, 30)], torch.tensor(4, device=device), torch.float32, chunk, masks)
            )
        )
        assert len(expected) == len(actual) == -(-7 // chunk)
        for (r, s), signs_there in zip(expected, actual, strict=True):
            assert [r.shape, s.shape] == [(min(chunk, len(r)), 10), (min(chunk, len(s)), 30)]
            for sign_here, sign_there in zip((r, s), signs_there, strict=True):
                assert_same(sign_here, sign_there)


def flipped(seed: Tensor, w: Tensor) -> Tensor:
    r, s = next(sign_batches(seed, KEY, [(0, 5), (1, 130)], 3, 4, torch.float64))
    return (r @ w @ s.T).square().sum()


def test_vmap_over_seeds_is_a_loop_over_seeds() -> None:
    seeds = torch.tensor(SEEDS, device=DEVICE)
    w = torch.randn(5, 130, dtype=torch.float64, device=DEVICE)
    gradient = torch.func.grad(flipped, argnums=1)
    with choosing("triton"):
        expected = torch.stack([gradient(seed, w) for seed in seeds])
        torch.testing.assert_close(torch.vmap(gradient, (0, None))(seeds, w), expected)
        (drawn,) = torch.vmap(lambda seed: next(sign_batches(seed, KEY, [(1, 9)], 0, 3, torch.float32)))(seeds)
        assert torch.equal(drawn[2], next(sign_batches(seeds[2], KEY, [(1, 9)], 0, 3, torch.float32))[0])
    with choosing("eager"):
        torch.testing.assert_close(torch.vmap(gradient, (0, None))(seeds, w), expected)


@pytest.mark.filterwarnings("ignore")
def test_the_op_passes_opcheck() -> None:
    seed = torch.tensor(3, device=DEVICE)
    for dtype, masks in ((torch.float32, False), (torch.bfloat16, True)):
        torch.library.opcheck(torch.ops.flipout.signs.default, (seed, KEY, 9, 2, 3, dtype, masks))
