"""Who reads a Parameter: the line of code, and whether it belongs to this library."""

import sys
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointFunction

# Modules that read a Parameter on behalf of the library, or to move it about: they want the Parameter itself.
_INSIDERS = ("flipout", "accelerate", "torch.distributed")
_PASSED = ("flipout.nn.audit", "flipout.nn.checkpoints")  # they run code of others
_APPLY = torch.autograd.Function.apply.__func__.__code__  # pyright: ignore[reportFunctionMemberAccess]
_CALL = nn.Module._call_impl.__code__


def _module(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "")


def _is_within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def is_own(layer: Any, frame: FrameType) -> bool:
    """Return True if a frame that reads an attribute of the layer wants the Parameter without noise.

    That is code of this library, and methods of a layer that was written to add the noise itself.
    """
    name = _module(frame)
    if _is_within(name, _INSIDERS):
        return True
    return any(
        frame.f_code.co_qualname.startswith(f"{kind.__qualname__}.") and name == kind.__module__
        for kind in type(layer).__mro__
        # A class that was made on the fly has the name of the plain one, whose methods know nothing of noise.
        if layer._declared.reads_itself or (hasattr(kind, "_declared") and "_origin" not in vars(kind))
    )


def is_own_name(module: str) -> bool:
    """Return True if code of that module wants the Parameter without noise."""
    return _is_within(module, _INSIDERS)


def reader() -> str:
    """Return "file:line" of the innermost code that is neither torch's nor this library's."""
    frame = sys._getframe(1)
    while frame is not None:
        if not _is_within(_module(frame), ("torch", "flipout", "contextlib")):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown line"


def is_inside_function() -> bool:
    """Return True inside the forward of a hand-written `torch.autograd.Function` that the innermost module calls."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not _CALL:
        if frame.f_code is _APPLY and frame.f_locals["cls"] is not CheckpointFunction:
            return True
        frame = frame.f_back
    return False


def innermost_call() -> Any:
    """Return the module whose call is the innermost that runs, None outside of every module."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _CALL:
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


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
        if frame.f_code is _CALL:
            return frame.f_locals["self"] is layer and layer._declared.reads_itself
        name = _module(frame)
        if _is_within(name, _INSIDERS) and name not in _PASSED:
            return True
        frame = frame.f_back
    return False
