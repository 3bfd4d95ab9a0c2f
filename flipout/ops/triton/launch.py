"""Launches without the way through Triton's own dispatch, which takes longer than many a kernel.

What Triton compiles a kernel for is written down once: dtypes, alignment, what it knows of whole numbers, constants.
A call with the same of these goes straight to the compiled kernel, with addresses in place of tensors.
"""

from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton import knobs

from .base import INTERPRETED

# torch.cuda's own of these see to the initialisation first, which a tensor on a device has behind it.
_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_compiled: dict[tuple[Any, ...], tuple[Any, list[Any]]] = {}  # the kernel, and its constants in their order
_told_apart: dict[int, list[int]] = {}


def launch(kernel: Any, grid: tuple[int, ...], *given: Any, **constants: Any) -> None:
    """kernel[grid](*given, **constants), on the device of the first tensor."""
    if INTERPRETED:
        kernel[grid](*given, **constants)
        return
    device = given[0].get_device()
    if device != _device():
        with torch.cuda.device(device):
            launch(kernel, grid, *given, **constants)
        return
    key, args = _kinds(kernel, given)
    key += constants
    key += [id(one) if one.__class__ is tl.dtype else one for one in constants.values()]  # whose hash is slow
    found = _compiled.get(tuple(key))
    if found is None:
        made = kernel[grid](*given, **constants)
        _compiled[tuple(key)] = made, [constants[name] for name in kernel.arg_names[len(given) :]]
        return
    compiled, rest = found
    whole = (*grid, 1, 1)[:3]
    if _watched():
        compiled[whole](*given, *rest)
        return
    about = (_stream(device), compiled.function, compiled.packed_metadata, None, None, None)
    compiled.run(*whole, *about, *args, *rest)


def _watched() -> bool:
    """Whether somebody, such as Triton's profiler, wants to hear of launches."""
    before, after = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return bool(getattr(before, "calls", before) or getattr(after, "calls", after))


def _kinds(kernel: Any, given: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """All that a kernel may be compiled for, at least as fine as Triton tells apart; and what it is called with."""
    own = id(kernel)
    kinds: list[Any] = [own]
    args = list(given)
    places = _told_apart.get(own)
    if places is None:
        fixed = [parameter.do_not_specialize and parameter.annotation_type for parameter in kernel.params]
        places = _told_apart[own] = [place for place in range(len(given)) if not fixed[place]]
    for place in places:
        value = given[place]
        if value is None:
            kinds.append(None)
        elif isinstance(value, Tensor):
            args[place] = address = value.data_ptr()
            kinds += (value.dtype, value.get_device(), address & 15 == 0)
        elif type(value) is int:
            kinds.append(
                value & 15 == 0
                if 1 < value < 2**31
                else (value == 1, value & 15 == 0, -(2**31) <= value < 2**31, value < 2**63)
            )
        else:
            kinds.append(type(value))
    return kinds, args
