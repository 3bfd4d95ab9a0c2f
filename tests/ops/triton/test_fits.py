"""Whatever a kernel is admitted for, it computes what the definition does, and touches nothing beside it.

Shapes, dtypes and layouts in memory are drawn: channels last, transposed, expanded, with gaps and offsets, dimensions
of size 1 and 0. Around every tensor lies NaN, which nobody may read or write.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flipout import backend
from flipout.backend import is_eager
from tests.ops.triton.fuzz import lstms, noise, products, rows
from tests.ops.triton.fuzz.memory import Memory
from tests.ops.triton.kernels import DEVICE, MARKS

pytestmark = MARKS
CASES: dict[str, Callable[[Memory], None]] = {**noise.CASES, **rows.CASES, **products.CASES, **lstms.CASES}
EXAMPLES = {
    "multiply_twice": 50,
    "lstm": 6,
    "lstm of one weight": 6,
    "ruled_lstm": 12,
    "largest": 6,
    "flips": 15,
    "signs": 15,
}


def test_a_read_or_a_write_past_the_end_shows() -> None:
    @settings(max_examples=5)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        for make in (lambda x: [past(x).sum()], lambda x: [past(x).zero_().sum() * 0 + x.sum()]):
            memory = Memory(data.draw)
            x = memory.numbers(2, 3, dtype=torch.float32)
            memory.compare(lambda x: [x.sum()], x, near=1e-5)
            with pytest.raises(AssertionError):
                memory.compare(make, x, near=1e-5)

    def past(x: Tensor) -> Tensor:
        """The number behind the last one."""
        end = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
        return x.new_zeros(1) if is_eager() else x.as_strided((1,), (1,), x.storage_offset() + end)

    run()


def test_every_kernel_is_drawn() -> None:
    registered, _ = backend.kernels()
    assert sorted(CASES) == registered, "add a case of a new kernel to tests/ops/triton/fuzz"


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_what_is_admitted_is_what_the_definition_makes(name: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    used = Counter[str]()
    kernel = backend._kernels[name]
    monkeypatch.setitem(backend._kernels, name, kernel._replace(call=counted(kernel.call, used, name)))

    @settings(max_examples=times * EXAMPLES.get(name, 25))
    @given(st.data())
    def run(data: st.DataObject) -> None:
        CASES[name](Memory(data.draw))

    run()
    if DEVICE.type == "cuda" and not used[name]:
        pytest.skip(f"this device is never admitted for '{name}'")
    assert used[name] >= (3 if DEVICE.type == "cpu" else 1)


def counted(call: Any, used: Counter[str], name: str) -> Any:
    if isinstance(call, tuple):
        return tuple(counted(one, used, name) for one in call)

    def run(*given: Any, **options: Any) -> Any:
        used[name] += 1
        return call(*given, **options)

    return run
