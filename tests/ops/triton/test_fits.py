"""Whatever its `fits` admits, a kernel computes what the definition computes, and touches no other memory.

Shapes, dtypes and memory layouts are drawn: channels last, transposed, expanded, with gaps and offsets, with dimensions
of size 1 and 0. Every tensor lies amid NaN, which no kernel may read or overwrite.
"""

import ast
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import flipout
from flipout import backend
from flipout.backend import is_eager
from tests.ops.triton.fuzz import lstms, noise, products, rows
from tests.ops.triton.fuzz.memory import ROOM, Memory
from tests.ops.triton.kernels import DEVICE, MARKS

pytestmark = MARKS
CASES: dict[str, Callable[[Memory], None]] = {**noise.CASES, **rows.CASES, **products.CASES, **lstms.CASES}
EXAMPLES = {
    "fused_linear": 50,
    "lstm": 6,
    "shared_lstm": 6,
    "masked_lstm": 12,
    "largest": 6,
    "flips": 15,
    "signs": 15,
}


@pytest.mark.skipif(not ROOM, reason="nothing lies around a tensor here: compute-sanitizer finds what this test plants")
def test_a_read_or_write_past_the_end_is_found() -> None:
    @settings(max_examples=5)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        reads, writes = lambda x: [past(x).sum()], lambda x: [past(x).zero_().sum() * 0 + x.sum()]
        for make in (reads, writes):
            memory = Memory(data.draw)
            x = memory.numbers(2, 3, dtype=torch.float32)
            memory.compare(lambda x: [x.sum()], x, near=1e-5)
            with pytest.raises(AssertionError):
                memory.compare(make, x, near=1e-5)

    def past(x: Tensor) -> Tensor:
        """Return the number behind the last one."""
        end = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
        return x.new_zeros(1) if is_eager() else x.as_strided((1,), (1,), x.storage_offset() + end)

    run()


def test_empty_memory_is_poisoned() -> None:
    zeros = torch.zeros(3, device=DEVICE)
    for empty in (
        zeros.new_empty(3),
        torch.empty_like(zeros),
        torch.empty(3, device=DEVICE, dtype=torch.float8_e4m3fn),
    ):
        assert empty.float().isnan().all()
    assert (torch.empty(3, device=DEVICE, dtype=torch.int64) == 2**63 - 1).all()


def test_every_kernel_has_a_case() -> None:
    registered, _ = backend.kernels()
    assert sorted(CASES) == registered, "add a case for a new kernel to tests/ops/triton/fuzz"


def test_every_kernel_is_asked_for_by_its_name() -> None:
    """A name that no kernel has would fall back to the definition without a word."""
    package = Path(flipout.__file__).parent
    room = package / "ops" / "triton"
    asked = {
        str(call.args[0].value)
        for path in package.rglob("*.py")
        if room not in path.parents
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and getattr(call.func, "attr", getattr(call.func, "id", "")) in ("chosen", "group_kernel")
        if call.args and isinstance(call.args[0], ast.Constant)
    }
    assert sorted(asked) == backend.kernels()[0]


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_kernels_agree_with_the_definition(name: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    used = Counter[str]()
    kernel = backend._kernels[name]
    monkeypatch.setitem(backend._kernels, name, kernel._replace(call=counted(kernel.call, used, name)))

    @settings(max_examples=times * EXAMPLES.get(name, 25))
    @given(st.data())
    def run(data: st.DataObject) -> None:
        CASES[name](Memory(data.draw))

    run()
    if DEVICE.type == "cuda" and not used[name]:
        pytest.skip(f"'{name}' never admits this device")
    assert used[name] >= (3 if DEVICE.type == "cpu" else 1)


def counted(call: Any, used: Counter[str], name: str) -> Any:
    """Return a kernel, or several, that count their calls."""
    if isinstance(call, tuple):
        return tuple(counted(function, used, name) for function in call)

    def run(*arguments: Any, **options: Any) -> Any:
        used[name] += 1
        return call(*arguments, **options)

    return run
