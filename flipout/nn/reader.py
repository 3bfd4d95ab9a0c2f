"""Who reads a Parameter: the line of code, and whether it belongs to this library."""

import sys
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointFunction

from .._torch_internals import MODULE_CALL

# Modules that read a Parameter for the library, or to move it between devices: they want the Parameter itself.
_INSIDERS = ("flipout", "accelerate", "torch.distributed")
_PASSED = ("flipout.nn.audit", "flipout.nn.checkpoints")  # within these two, code of the user runs
_APPLY = torch.autograd.Function.apply.__func__.__code__  # pyright: ignore[reportFunctionMemberAccess]


def _module(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "")


def _is_within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def is_own(layer: Any, frame: FrameType) -> bool:
    """Return True if a frame that reads an attribute of the layer wants the Parameter without noise.

    That is code of this library, and methods of a layer that was written to add the noise itself.
    """
    return _wants_plain(type(layer), layer._declared.reads_itself, _module(frame), frame.f_code.co_qualname)


@lru_cache(4096)
def _wants_plain(kind_of_layer: type, reads_itself: bool, module: str, function: str) -> bool:
    if _is_within(module, _INSIDERS):
        return True
    return any(
        function.startswith(f"{kind.__qualname__}.") and module == kind.__module__
        for kind in kind_of_layer.__mro__
        # A class made at run time has the name of the plain class, whose methods know nothing of noise.
        if reads_itself or (hasattr(kind, "_declared") and "_origin" not in vars(kind))
    )


def is_own_name(module: str) -> bool:
    """Return True if code of that module wants the Parameter without noise."""
    return _is_within(module, _INSIDERS)


def caller() -> str:
    """Return the "file:line" of the innermost frame outside torch and this library."""
    frame = sys._getframe(1)
    while frame is not None:
        if not _is_within(_module(frame), ("torch", "flipout", "contextlib")):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown line"


def is_inside_function() -> bool:
    """Return True inside the forward of a hand-written `torch.autograd.Function` that the innermost module calls."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not MODULE_CALL:
        if frame.f_code is _APPLY and frame.f_locals["cls"] is not CheckpointFunction:
            return True
        frame = frame.f_back
    return False


def innermost_call() -> Any:
    """Return the module whose call is the innermost that runs, None outside of every module."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is MODULE_CALL:
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


def running_method(modules: Sequence[Any]) -> str | None:
    """Return the name of the outermost method of one of these modules that runs, None if there is none.

    A property or `__getattr__` that somebody outside asks is no method in this sense.
    """
    frame, name = sys._getframe(1), None
    while frame is not None:
        code = frame.f_code
        first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if first is not None and any(first is module for module in modules) and _is_method(code, type(first)):
            name = code.co_name
        frame = frame.f_back
    return name


def _is_method(code: CodeType, kind: type) -> bool:
    """Return True for the code of a method that a class, none of torch's or of this library, has written."""
    if code.co_name.startswith("__") or isinstance(getattr(kind, code.co_name, None), property):
        return False
    return any(
        code.co_qualname == f"{base.__qualname__}.{code.co_name}"
        for base in kind.__mro__
        if not _is_within(base.__module__, ("torch", *_INSIDERS))
    )


def is_checkpointed() -> bool:
    """Return True if torch's checkpoint runs the code that asks: a hook of a backward pass is no recomputation."""
    frame = sys._getframe(1)
    while frame is not None:
        if _module(frame) == "torch.utils.checkpoint":
            return True
        frame = frame.f_back
    return False


def is_own_reader(layer: Any) -> bool:
    """Return True if the torch function that runs was called by the layer itself, or by this library for it."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is MODULE_CALL:
            return frame.f_locals["self"] is layer and layer._declared.reads_itself
        name = _module(frame)
        if _is_within(name, _INSIDERS) and name not in _PASSED:
            return True
        frame = frame.f_back
    return False
