"""A launch with an equal key goes straight to the kernel that Triton compiled for it."""

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.ops.triton.kernels import MARKS

launching, internals = (import_module(f"flipout.ops.triton.{name}") for name in ("launching", "internals"))
pytestmark = MARKS


class Kernel:
    """A kernel that counts its compilations and notes what its compiled kernels are called with.

    It does not specialise on its last number, `key`.
    """

    arg_names: tuple[str, ...] = ("out", "x", "count", "key", "SIZE", "FLAG")
    params = tuple(
        SimpleNamespace(do_not_specialize=name == "key", annotation_type="i64" * (name == "key")) for name in arg_names
    )

    def __init__(self) -> None:
        self.compiled: list[tuple[Any, ...]] = []
        self.launched: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def compile_and_launch(*arguments: Any, **constants: Any) -> "Compiled":
            self.compiled.append((grid, *arguments, *constants.items()))
            return Compiled(self)

        return compile_and_launch


class Launcher:
    """Triton's launcher, which needs scratch memory and is therefore called itself."""

    global_scratch_size, profile_scratch_size = 8, 0

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(self, gridX: int, gridY: int, gridZ: int, stream: Any, function: Any, *args: Any) -> None:
        self.kernel.launched.append((gridX, gridY, gridZ, stream, function, *args))


class Compiled:
    function, packed_metadata = "function", "metadata"

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    @property
    def run(self) -> Launcher:
        return Launcher(self.kernel)

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *arguments: self.kernel.launched.append(("watched", *grid, *arguments))


def tensor(dtype: torch.dtype = torch.float32, address: int = 32, device: int = 0) -> Any:
    return SimpleNamespace(dtype=dtype, get_device=lambda: device, data_ptr=lambda: address)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Launch as on device 0, whose stream is 100, with nothing compiled yet."""
    monkeypatch.setattr(launching, "INTERPRETED", False)
    monkeypatch.setattr(launching, "_prepared", {})
    monkeypatch.setattr(launching, "_specialised", {})
    monkeypatch.setattr(launching, "Tensor", SimpleNamespace)
    monkeypatch.setattr(launching, "current_device", lambda: 0)
    monkeypatch.setattr(internals, "_IS_KNOWN", True)
    monkeypatch.setattr(internals, "raw_stream", lambda device: 100 + device)
    return Kernel()


def test_equal_calls_compile_once_and_pass_all_arguments_in_order(kernel: Kernel) -> None:
    for count, key in ((3, 1), (5, 32), (7, 2**40)):
        launching.launch(kernel, (count,), tensor(), None, count, key, FLAG=True, SIZE=4, num_warps=8)
    assert len(kernel.compiled) == 1
    details = (100, "function", "metadata", None, None, None)
    assert kernel.launched == [
        (5, 1, 1, *details, 32, None, 5, 32, 4, True),
        (7, 1, 1, *details, 32, None, 7, 2**40, 4, True),
    ]


def test_a_launch_appends_its_fixed_arguments(kernel: Kernel) -> None:
    launch = launching.Launch(kernel, (2, 3), 9, FLAG=True, SIZE=4, num_warps=8)
    kernel.arg_names = ("out", "x", "key", "count", "SIZE", "FLAG")
    for address, key in ((32, 1), (48, 2**40), (40, 1), (56, 2)):
        launch((tensor(address=address), None), key)
    assert len(kernel.compiled) == 2  # for multiples of 16 bytes, and for the rest
    details = (2, 3, 1, 100, "function", "metadata", None, None, None)
    assert kernel.launched == [(*details, 48, None, 2**40, 9, 4, True), (*details, 56, None, 2, 9, 4, True)]


@pytest.mark.parametrize("other", [(tensor(torch.float16), tensor()), (tensor(), None), (tensor(), tensor(address=8))])
def test_a_launch_is_compiled_for_each_kind_of_tensors(kernel: Kernel, other: tuple[Any, ...]) -> None:
    launch = launching.Launch(kernel, (1,), 9, FLAG=True, SIZE=4)
    launch((tensor(), tensor()), 0)
    launch(other, 0)
    assert len(kernel.compiled) == 2
    assert not kernel.launched


def test_hooks_are_called_if_there_are_any(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    out, constants = tensor(), {"SIZE": 4, "FLAG": True}
    for hooks in (None, SimpleNamespace(calls=[]), SimpleNamespace(calls=[print]), print):
        runtime = SimpleNamespace(launch_enter_hook=hooks, launch_exit_hook=None)
        monkeypatch.setattr(internals, "knobs", SimpleNamespace(runtime=runtime))
        launching.launch(kernel, (1, 2), out, None, 3, 4, **constants)
    unwatched, *watched = kernel.launched
    assert unwatched[:3] == (1, 2, 1)
    assert watched == [("watched", 1, 2, 1, out, None, 3, 4, 4, True)] * 2


@pytest.mark.parametrize(
    ("other", "constants"),
    [
        ((tensor(torch.float16), tensor(), 3), {}),
        ((tensor(address=40), tensor(), 3), {}),
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
def test_what_triton_compiles_anew_has_another_key(
    kernel: Kernel, other: tuple[Any, ...], constants: dict[str, Any]
) -> None:
    usual = {"SIZE": 4, "FLAG": True, "num_warps": 8}
    launching.launch(kernel, (1,), tensor(), tensor(), 3, 0, **usual)
    launching.launch(kernel, (1,), *other, 0, **{**usual, **constants})
    assert len(kernel.compiled) == 2
    assert not kernel.launched
