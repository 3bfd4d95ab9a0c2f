"""Launches that skip Triton's dispatch, which takes longer than many a kernel.

A compiled kernel is remembered under all that Triton compiled it for: dtypes, alignment, what it knows of integers,
and constants. A later call with an equal key goes straight to the compiled kernel, with addresses in place of tensors.
A `Launch` is cheaper still: it builds most of the key and of the arguments once, when it is made.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from .base import INTERPRETED
from .internals import PreparedLaunch, current_device, is_watched, prepare, specialised

_prepared: dict[tuple[Any, ...], PreparedLaunch] = {}
_specialised: dict[int, list[int]] = {}  # by the kernel's id


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Do kernel[grid](*arguments, **constants), on the device of the first tensor."""
    if INTERPRETED:
        kernel[grid](*arguments, **constants)
        return
    device = arguments[0].get_device()
    if device != current_device():
        with torch.cuda.device(device):
            launch(kernel, grid, *arguments, **constants)
        return
    parts, addresses = _key(kernel, arguments)
    parts += constants
    # By identity, since the hash of a tl.dtype is slow.
    parts += [id(value) if value.__class__ is tl.dtype else value for value in constants.values()]
    key = tuple(parts)
    prepared = _prepared.get(key)
    if prepared is None:
        compiled = kernel[grid](*arguments, **constants)
        prepared = prepare(kernel, compiled, device, len(arguments), (), constants)
        if prepared is not None:
            _prepared[key] = prepared
        return
    _start(prepared, (*grid, 1, 1)[:3], device, arguments, addresses)


class Launch:
    """A kernel with its grid and the arguments that stay from call to call: its last numbers, and its constants.

    A call adds the tensors, which come first, and the numbers after them. The kernel must declare those numbers as
    64-bit integers and must not specialise on them.
    """

    def __init__(self, kernel: Any, grid: tuple[int, ...], *numbers: int, **constants: Any) -> None:
        self.kernel, self.grid, self.numbers, self.constants = kernel, (*grid, 1, 1)[:3], numbers, constants
        self.prepared: dict[tuple[Any, ...], PreparedLaunch] = {}

    def __call__(self, tensors: tuple[Tensor | None, ...], *numbers: int) -> None:
        """Launch on the device of the first tensor."""
        first = tensors[0]
        assert first is not None
        device = first.get_device()
        if INTERPRETED:
            self._compile(tensors, numbers)
            return
        if device != current_device():
            with torch.cuda.device(device):
                self(tensors, *numbers)
            return
        addresses = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        dtypes = [None if tensor is None else tensor.dtype for tensor in tensors]
        key = (device, *dtypes, *[address is None or address & 15 == 0 for address in addresses])
        prepared = self.prepared.get(key)
        if prepared is None:
            compiled, leading = self._compile(tensors, numbers), len(tensors) + len(numbers)
            prepared = prepare(self.kernel, compiled, device, leading, self.numbers, self.constants)
            if prepared is not None:
                self.prepared[key] = prepared
            return
        _start(prepared, self.grid, device, (*tensors, *numbers), (*addresses, *numbers))

    def _compile(self, tensors: tuple[Tensor | None, ...], numbers: tuple[int, ...]) -> Any:
        """Launch through Triton, and return the kernel that it compiled or found."""
        return self.kernel[self.grid](*tensors, *numbers, *self.numbers, **self.constants)


def _start(
    prepared: PreparedLaunch, grid: tuple[int, ...], device: int, arguments: Sequence[Any], addresses: Sequence[Any]
) -> None:
    """Start a compiled kernel with the arguments, whose tensors stand as addresses in `addresses`."""
    compiled, start, stream, details, trailing = prepared
    if is_watched():
        compiled[grid](*arguments, *trailing)
    else:
        start(*grid, stream(device), *details, *addresses, *trailing)


def _key(kernel: Any, arguments: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Return all that a kernel may be compiled for, at least as fine as Triton tells apart, and the addresses."""
    identity = id(kernel)
    key: list[Any] = [identity]
    addresses = list(arguments)
    places = _specialised.get(identity)
    if places is None:
        places = _specialised[identity] = specialised(kernel, len(arguments))
    for place in places:
        value = arguments[place]
        if value is None:
            key.append(None)
        elif isinstance(value, Tensor):
            addresses[place] = address = value.data_ptr()
            key += (value.dtype, value.get_device(), address & 15 == 0)
        elif type(value) is int:
            key.append(
                value & 15 == 0
                if 1 < value < 2**31
                else (value == 1, value & 15 == 0, -(2**31) <= value < 2**31, value < 2**63)
            )
        else:
            key.append(type(value))
    return key, addresses
