"""The kernels under test: on a CUDA device if there is one, else on a CPU, in Triton's interpreter."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from flipout.backend import choosing
from tests.ops.triton.hurried import hurry

pytest.importorskip("triton", reason="triton is not installed; the kernels' tests need it (extra: triton)")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MARKS = [pytest.mark.gpu] if DEVICE.type == "cuda" else []
SEEDS = (0, -1, 12345, 2**63 - 1, -(2**63))
# A few ulp, by which the interpreter or a device may round differently from eager code on a CPU. In half precision the
# noise comes from a device's approximate functions, which are off by 2⁻²⁰ of up to 7.
_APPROXIMATE = 2.0**-17 if DEVICE.type == "cuda" else 0.0
CLOSE = {
    torch.float64: {"rtol": 2.0**-49, "atol": 0.0},
    torch.float32: {"rtol": 2.0**-20, "atol": 0.0},
    torch.bfloat16: {"rtol": 2.0**-7, "atol": _APPROXIMATE},
    torch.float16: {"rtol": 2.0**-9, "atol": max(_APPROXIMATE, 2.0**-23)},
}

with pytest.MonkeyPatch.context() as patch:
    # The kernels read this when they are imported. It is set only for the import, so that everything else in this
    # process stays eager.
    if DEVICE.type == "cpu":
        patch.setenv("TRITON_INTERPRET", "1")
    import_module("flipout.ops.triton")

if DEVICE.type == "cpu":
    hurry()


def both(make: Callable[[torch.device], Any]) -> tuple[Any, Any]:
    """Return what the eager definition makes on the CPU, and what the kernel makes."""
    with choosing("eager"):
        expected = make(torch.device("cpu"))
    with choosing("triton"):
        return expected, make(DEVICE)


def assert_same(expected: Tensor, actual: Tensor, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Compare to the bit, or within a tolerance."""
    torch.testing.assert_close(actual.cpu(), expected, rtol=rtol, atol=atol)
