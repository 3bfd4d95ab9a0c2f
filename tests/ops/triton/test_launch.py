"""What is launched again goes to the kernel that Triton compiled for the like of it."""

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.ops.triton.kernels import MARKS

module = import_module("flipout.ops.triton.launch")
pytestmark = MARKS


class Kernel:
    """Counts what it compiles, and what its compiled kernels are called with."""

    arg_names = ("out", "x", "count", "SIZE", "FLAG")

    def __init__(self) -> None:
        self.compiled: list[tuple[Any, ...]] = []
        self.launched: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def first(*given: Any, **constants: Any) -> "Kernel":
            self.compiled.append((grid, *given, *constants.items()))
            return Compiled(self)

        return first


class Compiled(Kernel):
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *given: self.kernel.launched.append((grid, *given))


def tensor(dtype: torch.dtype = torch.float32, at: int = 32, device: int = 0) -> Any:
    return SimpleNamespace(dtype=dtype, device=SimpleNamespace(index=device), data_ptr=lambda: at)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(module, "INTERPRETED", False)
    monkeypatch.setattr(module, "_compiled", {})
    monkeypatch.setattr(module, "Tensor", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return Kernel()


def test_the_like_is_compiled_once_and_gets_all_arguments_in_order(kernel: Kernel) -> None:
    for count in (3, 5, 7):
        module.launch(kernel, (count,), tensor(), None, count, FLAG=True, SIZE=4, num_warps=8)
    assert len(kernel.compiled) == 1
    assert [(grid, *given[1:]) for grid, *given in kernel.launched] == [
        ((5, 1, 1), None, 5, 4, True),
        ((7, 1, 1), None, 7, 4, True),
    ]


@pytest.mark.parametrize(
    ("other", "constants"),
    [
        ((tensor(torch.float16), None, 3), {}),
        ((tensor(at=40), None, 3), {}),
        ((tensor(), tensor(), 3), {}),
        ((tensor(), None, 1), {}),
        ((tensor(), None, 32), {}),
        ((tensor(), None, 2**31 + 1), {}),
        ((tensor(), None, -(2**31) - 1), {}),
        ((tensor(), None, 2**63 + 1), {}),
        ((tensor(), None, True), {}),
        ((tensor(), None, 3.0), {}),
        ((tensor(), None, 3), {"SIZE": 5}),
        ((tensor(), None, 3), {"num_warps": 4}),
    ],
)
def test_what_triton_compiles_anew_is_not_taken_for_the_like(
    kernel: Kernel, other: tuple[Any, ...], constants: dict[str, Any]
) -> None:
    usual = {"SIZE": 4, "FLAG": True, "num_warps": 8}
    module.launch(kernel, (1,), tensor(), None, 3, **usual)
    module.launch(kernel, (1,), *other, **{**usual, **constants})
    assert len(kernel.compiled) == 2
    assert not kernel.launched
