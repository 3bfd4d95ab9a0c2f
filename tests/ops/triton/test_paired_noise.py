"""Normal and uniform noise by the kernel is that of the definition: words to the bit, normal numbers to a few ulp."""

import math
from importlib import import_module

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flipout.backend import choosing
from tests.draws.test_noise import start_of
from tests.ops.triton.kernels import CLOSE, DEVICE, MARKS, assert_same, both
from tests.ops.triton.streams import assert_noise, noise, random_starts

pytestmark = MARKS
paired_noise = import_module("flipout.ops.triton.paired_noise")
DTYPES = tuple(CLOSE)
KINDS = ("normal", "uniform")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [0, 5])
def test_every_kind_and_dtype(kind: str, dtype: torch.dtype, part: int) -> None:
    assert_noise(random_starts(3), kind, (7, 33), dtype, part)


@given(
    st.sampled_from(KINDS),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=2),
    st.lists(st.integers(0, 70) | st.just(1), max_size=2),
    st.integers(0, 2**20),
)
def test_any_shape(kind: str, dtype: torch.dtype, bases: list[int], shape: list[int], part: int) -> None:
    assert_noise(random_starts(*bases), kind, tuple(shape), dtype, part)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limit", [2**30, 0], ids=["int32", "int64"])
def test_many_programs_with_either_index_type(kind: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipout.ops.triton.base._INT32_PLACES", limit)
    monkeypatch.setattr(paired_noise, "pair_launch", paired_noise.pair_launch.__wrapped__)  # without its cache
    assert_noise(random_starts(3), kind, (1537,), torch.float32)


def test_starting_points_need_not_be_contiguous() -> None:
    start = random_starts(4, 3)
    for view in (start.T, start[:, 1], start[0, 0].expand(3)):
        assert_noise(view, "normal", (5,), torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("high", [0, 1, 0xFFFFFFFF, 0xFFFFFF00, 0x80000000])
def test_normal_noise_of_extreme_words(dtype: torch.dtype, high: int) -> None:
    start = torch.tensor([start_of(high << 32 | low) for low in (0, 0x3FFFFFFF, 0x40000000, 0xFFFFFFFF)])
    expected, actual = both(lambda device: noise(start.to(device), "normal", (2,), dtype))
    assert_same(expected, actual, rtol=CLOSE[dtype]["rtol"], atol=1e-7 if dtype == torch.float32 else 1e-15)
    largest = math.sqrt(66 * math.log(2))
    assert float(actual.abs().max()) <= largest * (1 + 1e-6)
    if high == 0:
        assert float(actual.abs().max()) == pytest.approx(largest, rel=1e-6)


def test_vmap_over_any_dimension_of_the_starting_points() -> None:
    start = random_starts(3, 4).to(DEVICE)
    with choosing("triton"):
        drawn = torch.vmap(lambda column: noise(column, "normal", (5,), torch.float32), in_dims=1)(start)
        assert torch.equal(drawn, noise(start.T, "normal", (5,), torch.float32))


@pytest.mark.filterwarnings("ignore")
def test_the_ops_pass_opcheck() -> None:
    start = random_starts(3).to(DEVICE)
    torch.library.opcheck(torch.ops.flipout.normal.default, (start, (3, 5), torch.float32, 1))
    torch.library.opcheck(torch.ops.flipout.uniform.default, (start, (3, 5), 1))
