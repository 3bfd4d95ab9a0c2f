"""The kernels under test: on a CUDA device where there is one, else on a CPU, in Triton's interpreter."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from flipout.backend import using

pytest.importorskip("triton", reason="triton is not installed; the kernels' tests need it (extra: triton)")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MARKS = [pytest.mark.gpu] if DEVICE.type == "cuda" else []
SEEDS = (0, -1, 12345, 2**63 - 1, -(2**63))
# What the interpreter or a device may round otherwise than the eager code on a CPU: a few ulp. Half precision has its
# noise from a device's own functions, which are off by 2⁻²⁰ of up to 7.
_FAST = 2.0**-17 if DEVICE.type == "cuda" else 0.0
CLOSE = {
    torch.float64: {"rtol": 2.0**-49, "atol": 0.0},
    torch.float32: {"rtol": 2.0**-20, "atol": 0.0},
    torch.bfloat16: {"rtol": 2.0**-7, "atol": _FAST},
    torch.float16: {"rtol": 2.0**-9, "atol": max(_FAST, 2.0**-23)},
}

with pytest.MonkeyPatch.context() as patch:
    # Decided when the kernels are imported; only then, so that everything else in this process stays eager.
    if DEVICE.type == "cpu":
        patch.setenv("TRITON_INTERPRET", "1")
    import_module("flipout.ops.triton")

# Half of the interpreter's time goes into tests for overflow whose outcome it looks at under `debug` alone.
_BUILDER = import_module("triton.runtime.interpreter").interpreter_builder
if not _BUILDER.options.debug:
    _BUILDER.options = replace(_BUILDER.options, sanitize_overflow=False)


def both(make: Callable[[torch.device], Any]) -> tuple[Any, Any]:
    """What the eager definition makes on the CPU, and what the kernel makes."""
    with using("eager"):
        expected = make(torch.device("cpu"))
    with using("triton"):
        return expected, make(DEVICE)


def assert_same(expected: Tensor, made: Tensor, rtol: float = 0.0, atol: float = 0.0) -> None:
    """To the bit, or within a tolerance."""
    torch.testing.assert_close(made.cpu(), expected, rtol=rtol, atol=atol)
