"""Noise of ±1 by the kernel is that of the definition, to the bit."""

from importlib import import_module

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.triton.kernels import CLOSE, DEVICE, MARKS
from tests.ops.triton.streams import assert_noise, random_starts

pytestmark = MARKS
sign_noise = import_module("flipout.ops.triton.sign_noise")
DTYPES = tuple(CLOSE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("part", [0, 5])
def test_every_dtype(dtype: torch.dtype, part: int) -> None:
    assert_noise(random_starts(3), "sign", (7, 33), dtype, part)


@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=2),
    st.lists(st.integers(0, 70) | st.just(1), max_size=2),
    st.integers(0, 2**20),
)
def test_any_shape(dtype: torch.dtype, bases: list[int], shape: list[int], part: int) -> None:
    assert_noise(random_starts(*bases), "sign", tuple(shape), dtype, part)


@pytest.mark.parametrize("limit", [2**30, 0], ids=["int32", "int64"])
def test_many_programs_with_either_index_type(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipout.ops.triton.base._INT32_PLACES", limit)
    monkeypatch.setattr(sign_noise, "sign_launch", sign_noise.sign_launch.__wrapped__)  # without its cache
    assert_noise(random_starts(3), "sign", (1537,), torch.float32)


@pytest.mark.filterwarnings("ignore")
def test_the_op_passes_opcheck() -> None:
    start = random_starts(3).to(DEVICE)
    torch.library.opcheck(torch.ops.flipout.sign.default, (start, (3, 5), torch.bfloat16, 1))
