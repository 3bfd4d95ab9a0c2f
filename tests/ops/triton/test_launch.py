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
    """Counts what it compiles, and what its compiled kernels are called with. Its last number is not told apart."""

    arg_names: tuple[str, ...] = ("out", "x", "count", "key", "SIZE", "FLAG")
    params = tuple(
        SimpleNamespace(do_not_specialize=name == "key", annotation_type="i64" * (name == "key")) for name in arg_names
    )

    def __init__(self) -> None:
        self.compiled: list[tuple[Any, ...]] = []
        self.launched: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def first(*given: Any, **constants: Any) -> "Compiled":
            self.compiled.append((grid, *given, *constants.items()))
            return Compiled(self)

        return first


class Compiled:
    function, packed_metadata = "function", "metadata"

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *given: self.kernel.launched.append(("watched", *grid, *given))

    def run(self, *given: Any) -> None:
        self.kernel.launched.append(given)


def tensor(dtype: torch.dtype = torch.float32, at: int = 32, device: int = 0) -> Any:
    return SimpleNamespace(dtype=dtype, get_device=lambda: device, data_ptr=lambda: at)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(module, "INTERPRETED", False)
    monkeypatch.setattr(module, "_LAUNCHER", False)
    monkeypatch.setattr(module, "_compiled", {})
    monkeypatch.setattr(module, "Tensor", SimpleNamespace)
    monkeypatch.setattr(module, "_told_apart", {})
    monkeypatch.setattr(module, "_device", lambda: 0)
    monkeypatch.setattr(module, "_stream", lambda device: f"stream of {device}")
    return Kernel()


def test_the_like_is_compiled_once_and_gets_all_arguments_in_order(kernel: Kernel) -> None:
    for count, key in ((3, 1), (5, 32), (7, 2**40)):
        module.launch(kernel, (count,), tensor(), None, count, key, FLAG=True, SIZE=4, num_warps=8)
    assert len(kernel.compiled) == 1
    about = ("stream of 0", "function", "metadata", None, None, None)
    assert kernel.launched == [
        (5, 1, 1, *about, 32, None, 5, 32, 4, True),
        (7, 1, 1, *about, 32, None, 7, 2**40, 4, True),
    ]


def test_what_stays_is_handed_over_behind_what_is_given(kernel: Kernel) -> None:
    launch = module.Launch(kernel, (2, 3), 9, FLAG=True, SIZE=4, num_warps=8)
    kernel.arg_names = ("out", "x", "key", "count", "SIZE", "FLAG")
    for at, key in ((32, 1), (48, 2**40), (40, 1), (56, 2)):
        launch((tensor(at=at), None), key)
    assert len(kernel.compiled) == 2  # at multiples of 16 bytes, and elsewhere
    about = (2, 3, 1, "stream of 0", "function", "metadata", None, None, None)
    assert kernel.launched == [(*about, 48, None, 2**40, 9, 4, True), (*about, 56, None, 2, 9, 4, True)]


@pytest.mark.parametrize("other", [(tensor(torch.float16), tensor()), (tensor(), None), (tensor(), tensor(at=8))])
def test_what_stays_is_compiled_for_each_kind_of_tensors(kernel: Kernel, other: tuple[Any, ...]) -> None:
    launch = module.Launch(kernel, (1,), 9, FLAG=True, SIZE=4)
    launch((tensor(), tensor()), 0)
    launch(other, 0)
    assert len(kernel.compiled) == 2
    assert not kernel.launched


def test_who_watches_launches_hears_of_them(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    out, constants = tensor(), {"SIZE": 4, "FLAG": True}
    for hooks in (None, SimpleNamespace(calls=[]), SimpleNamespace(calls=[print]), print):
        runtime = SimpleNamespace(launch_enter_hook=hooks, launch_exit_hook=None)
        monkeypatch.setattr(module, "knobs", SimpleNamespace(runtime=runtime))
        module.launch(kernel, (1, 2), out, None, 3, 4, **constants)
    quiet, *heard = kernel.launched
    assert quiet[:3] == (1, 2, 1)
    assert heard == [("watched", 1, 2, 1, out, None, 3, 4, 4, True)] * 2


@pytest.mark.parametrize(
    ("other", "constants"),
    [
        ((tensor(torch.float16), tensor(), 3), {}),
        ((tensor(at=40), tensor(), 3), {}),
        ((tensor(), None, 3), {}),
        ((tensor(), tensor(device=-1), 3), {}),
        ((tensor(), tensor(), 1), {}),
        ((tensor(), tensor(), 32), {}),
        ((tensor(), tensor(), 2**31 + 1), {}),
        ((tensor(), tensor(), -(2**31) - 1), {}),
        ((tensor(), tensor(), 2**63 + 1), {}),
        ((tensor(), tensor(), True), {}),
        ((tensor(), tensor(), 3.0), {}),
        ((tensor(), tensor(), 3), {"SIZE": 5}),
        ((tensor(), tensor(), 3), {"num_warps": 4}),
    ],
)
def test_what_triton_compiles_anew_is_not_taken_for_the_like(
    kernel: Kernel, other: tuple[Any, ...], constants: dict[str, Any]
) -> None:
    usual = {"SIZE": 4, "FLAG": True, "num_warps": 8}
    module.launch(kernel, (1,), tensor(), tensor(), 3, 0, **usual)
    module.launch(kernel, (1,), *other, 0, **{**usual, **constants})
    assert len(kernel.compiled) == 2
    assert not kernel.launched
