"""A private interface that is missing or changed makes launches slower, and nothing else."""

import runpy
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton

from tests.ops.triton.kernels import MARKS
from tests.ops.triton.test_launching import Compiled, Kernel, Launcher, kernel, tensor

__all__ = ["kernel"]  # the fixture
launching, internals = (import_module(f"flipout.ops.triton.{name}") for name in ("launching", "internals"))
pytestmark = MARKS
Change = Callable[[pytest.MonkeyPatch], None]


def without(owner: Any, name: str) -> Change:
    return lambda patch: patch.delattr(owner, name)


def replaced(owner: Any, name: str, value: Any) -> Change:
    return lambda patch: patch.setattr(owner, name, value)


def call_with_one_grid(self: Launcher, grid: tuple[int, ...], stream: Any, *args: Any) -> None:
    raise AssertionError("called as in Triton 3.6")


CHANGES: dict[str, Change] = {
    "another Triton": replaced(internals, "_IS_KNOWN", False),
    "no function": without(Compiled, "function"),
    "no packed metadata": without(Compiled, "packed_metadata"),
    "no launch by grid": without(Compiled, "__getitem__"),
    "no launcher": without(Compiled, "run"),
    "a launcher that is a builtin": replaced(Compiled, "run", len),
    "a launcher with other parameters": replaced(Launcher, "__call__", call_with_one_grid),
    "a launcher without scratch sizes": without(Launcher, "global_scratch_size"),
    "no argument names": without(Kernel, "arg_names"),
    "other argument names": replaced(Kernel, "arg_names", tuple("abcdef")),
    "a stream that takes no device": replaced(internals, "raw_stream", lambda: 0),
    "a stream that is no number": replaced(internals, "raw_stream", lambda device: object()),
}


def launch_four_times(kernel: Kernel) -> None:
    """Launch twice by `launch` and twice by a `Launch`."""
    out, constants = tensor(), {"SIZE": 4, "FLAG": True}
    launch = launching.Launch(kernel, (2,), 9, **constants)
    for number in (5, 7):
        launching.launch(kernel, (1,), out, None, number, 4, **constants)
        launch((out, None), number)


def test_without_a_change_the_second_launch_skips_triton(kernel: Kernel) -> None:
    launch_four_times(kernel)
    assert (len(kernel.compiled), len(kernel.launched)) == (2, 2)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_interface_falls_back_to_triton(change: str, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    CHANGES[change](monkeypatch)
    launch_four_times(kernel)
    assert (len(kernel.compiled), len(kernel.launched)) == (4, 0)


@pytest.mark.parametrize("change", [without(Kernel, "params"), replaced(Kernel, "params", ())], ids=["none", "fewer"])
def test_without_parameters_keys_are_finer(change: Change, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch)
    for key in (3, 3, 2**40):
        launching.launch(kernel, (1,), tensor(), None, 5, key, SIZE=4, FLAG=True)
    assert (len(kernel.compiled), len(kernel.launched)) == (2, 1)


def test_triton_3_6_is_started_in_c(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without scratch memory, past the launcher's Python."""
    monkeypatch.setattr(internals.torch.version, "hip", None)
    monkeypatch.setattr(Launcher, "global_scratch_size", 0)
    monkeypatch.setattr(Launcher, "launch_cooperative_grid", True, raising=False)
    monkeypatch.setattr(Launcher, "launch_pdl", False, raising=False)
    in_c: list[tuple[Any, ...]] = []
    monkeypatch.setattr(Launcher, "launch", lambda self, *args: in_c.append(args), raising=False)
    for key in (1, 2):
        launching.launch(kernel, (1, 2), tensor(), None, 5, key, SIZE=4, FLAG=True)
    head = (1, 2, 1, 100, "function", True, False, None, None, "metadata", None, None, None)
    assert in_c == [(*head, 32, None, 5, 2, 4, True)]
    monkeypatch.delattr(Launcher, "launch_pdl")
    launching._prepared.clear()
    for key in (1, 2):
        launching.launch(kernel, (1, 2), tensor(), None, 5, key, SIZE=4, FLAG=True)
    assert len(in_c) == 1
    assert len(kernel.compiled) == 3


def test_what_is_missing_at_import_has_a_public_substitute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "knobs", SimpleNamespace(runtime=SimpleNamespace()))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for name in ("_cuda_getDevice", "_cuda_getCurrentRawStream"):
        monkeypatch.delattr(torch._C, name, raising=False)
    fresh = runpy.run_path(str(internals.__file__))
    assert fresh["INTERPRETED"] is True
    assert fresh["_IS_KNOWN"] is False
    assert fresh["current_device"] is torch.cuda.current_device
    assert fresh["raw_stream"] is fresh["_public_stream"]


def test_importing_kernels_without_a_driver_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internals, "runtime", SimpleNamespace(driver=SimpleNamespace()))
    with pytest.raises(ImportError, match=r"Triton cannot run here \(.*'active'\)"):
        internals.require_driver()
