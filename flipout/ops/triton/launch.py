"""Launches without the way through Triton's own dispatch, which takes longer than many a kernel.

What Triton compiles a kernel for is written down once: dtypes, alignment, what it knows of whole numbers, constants.
A call with the same of these goes straight to the compiled kernel, with addresses in place of tensors. A `Launch` has
most of that written down already when it is called.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton import knobs

from .base import INTERPRETED

# torch.cuda's own of these see to the initialisation first, which a tensor on a device has behind it.
_device = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
# Triton's launcher of these versions, for NVIDIA: a function in C, and Python around it that asks for scratch memory.
_LAUNCHER = triton.__version__.startswith("3.6.") and torch.version.hip is None
_compiled: dict[tuple[Any, ...], "_Ready"] = {}
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
        _compiled[tuple(key)] = _ready(made, [constants[name] for name in kernel.arg_names[len(given) :]])
        return
    _hand_over(found, (*grid, 1, 1)[:3], device, given, args)


class Launch:
    """A kernel with its grid and with what stays from one call to the next: its last numbers, and its constants.

    A call hands over the tensors, which come first, and the numbers between, which the kernel has to declare as
    integers of 64 bits that are not specialised on.
    """

    def __init__(self, kernel: Any, grid: tuple[int, ...], *numbers: int, **constants: Any) -> None:
        self.kernel, self.grid, self.numbers, self.constants = kernel, (*grid, 1, 1)[:3], numbers, constants
        self.compiled: dict[tuple[Any, ...], _Ready] = {}

    def __call__(self, tensors: tuple[Tensor | None, ...], *numbers: int) -> None:
        """On the device of the first tensor."""
        first = tensors[0]
        assert first is not None
        device = first.get_device()
        if INTERPRETED:
            self._first(tensors, numbers)
            return
        if device != _device():
            with torch.cuda.device(device):
                self(tensors, *numbers)
            return
        args = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        dtypes = [None if tensor is None else tensor.dtype for tensor in tensors]
        kinds = (device, *dtypes, *[address is None or address & 15 == 0 for address in args])
        found = self.compiled.get(kinds)
        if found is None:
            made = self._first(tensors, numbers)
            named = self.kernel.arg_names[len(tensors) + len(numbers) + len(self.numbers) :]
            self.compiled[kinds] = _ready(made, [*self.numbers, *(self.constants[name] for name in named)])
            return
        _hand_over(found, self.grid, device, (*tensors, *numbers), (*args, *numbers))

    def _first(self, tensors: tuple[Tensor | None, ...], numbers: tuple[int, ...]) -> Any:
        return self.kernel[self.grid](*tensors, *numbers, *self.numbers, **self.constants)


class _Ready(NamedTuple):
    """A compiled kernel; what starts it, and wants to know all `about` it; and what comes behind its arguments."""

    compiled: Any
    start: Callable[..., None]
    about: tuple[Any, ...]
    rest: list[Any]


def _ready(compiled: Any, rest: list[Any]) -> _Ready:
    run, about = compiled.run, (compiled.packed_metadata, None, None, None)
    if _LAUNCHER and not (run.global_scratch_size or run.profile_scratch_size):
        about = run.launch_cooperative_grid, run.launch_pdl, None, None, *about
        run = run.launch
    return _Ready(compiled, run, (compiled.function, *about), rest)


def _hand_over(ready: _Ready, grid: tuple[int, ...], device: int, given: Sequence[Any], args: Sequence[Any]) -> None:
    """The arguments as they were given, and as they are handed to a device."""
    compiled, start, about, rest = ready
    if _watched():
        compiled[grid](*given, *rest)
    else:
        start(*grid, _stream(device), *about, *args, *rest)


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
