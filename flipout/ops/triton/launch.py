"""Launches without the way through Triton's own dispatch, which takes longer than many a kernel.

What Triton compiles a kernel for is written down once: dtypes, alignment, what it knows of whole numbers, constants.
A call with the same of these goes straight to the compiled kernel.
"""

from typing import Any

import torch
from torch import Tensor

from .base import INTERPRETED

_compiled: dict[tuple[Any, ...], Any] = {}


def launch(kernel: Any, grid: tuple[int, ...], *given: Any, **constants: Any) -> None:
    """kernel[grid](*given, **constants), on the device of the first tensor."""
    if INTERPRETED:
        kernel[grid](*given, **constants)
        return
    device = given[0].device.index
    if device != torch.cuda.current_device():
        with torch.cuda.device(device):
            launch(kernel, grid, *given, **constants)
        return
    key = (id(kernel), device, *map(_kind, given), *constants.items())
    compiled = _compiled.get(key)
    if compiled is None:
        _compiled[key] = kernel[grid](*given, **constants)
        return
    names = kernel.arg_names[len(given) :]
    whole = (*grid, 1, 1)[:3]
    compiled[whole](*given, *[constants[name] for name in names])


def _kind(value: Any) -> Any:
    """All that a kernel may be compiled for: at least as fine as Triton's own distinction."""
    if isinstance(value, Tensor):
        return value.dtype, value.data_ptr() % 16 == 0
    if isinstance(value, int) and not isinstance(value, bool):
        return value == 1, value % 16 == 0, -(2**31) <= value < 2**31, value < 2**63
    return type(value)
