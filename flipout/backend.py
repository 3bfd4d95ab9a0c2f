"""Who computes: an eager definition, or a kernel that is registered over it.

The eager code is the definition and runs everywhere. A kernel replaces one definition, by its name, where it fits.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from .errors import BackendUnavailable, InvalidArgument

ADA = (8, 9)  # NVIDIA's first devices that multiply FP8
Backend = Literal["auto", "eager", "triton"]
# Triton's interpreter runs kernels on a CPU, slowly; a process that starts with this asks for it everywhere.
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


class _Kernel(NamedTuple):
    call: Any  # a function, or several that serve the same
    fits: Callable[..., bool]


_kernels: dict[str, _Kernel] = {}
_offered: list[str] = []  # modules of kernels that nobody needed so far
_refused: list[str] = []  # why some of them could not be imported
_requested: Backend = "auto"


def register(name: str, kernel: Any, fits: Callable[..., bool]) -> None:
    """Let `kernel`, a function or several, replace the eager definition `name` where `fits(tensor, …)`, with what
    `chosen` was told."""
    _kernels[name] = _Kernel(kernel, fits)


def offer(module: str) -> None:
    """A module that registers kernels when it is imported: at the first tensor that one of them may serve."""
    _offered.append(module)


def chosen(name: str, tensor: Tensor, *about: Any, required: bool = True) -> Any:
    """The kernel to use for the definition `name` on this tensor, or None: use the definition itself.

    One that is not `required` only joins steps that have kernels of their own: an explicit request does without it.
    The automatic choice leaves what torch.compile traces to the compiler, which fuses the eager code.
    """
    if _requested == "eager":
        return None
    if _requested == "auto" and (not (tensor.is_cuda or _INTERPRETED) or torch.compiler.is_compiling()):
        return None
    if _offered:
        _import_offered()
    kernel = _kernels.get(name)
    if kernel is not None and kernel.fits(tensor, *about):
        return kernel.call
    if _requested == "auto" or not required:
        return None
    given = ", ".join(map(str, (f"a tensor on {tensor.device}", *about)))
    why = "".join(f" {reason}" for reason in _refused)
    raise BackendUnavailable(
        f"backend '{_requested}' was requested, but has no kernel for '{name}' with {given}.{why} Kernels serve CUDA "
        "tensors, or any in Triton's interpreter (TRITON_INTERPRET=1 before the process starts). Move the model to a "
        "CUDA device, or use flipout.backend.using('auto'), which falls back to the eager code."
    )


@cache
def capability(device: torch.device) -> tuple[int, int]:
    """NVIDIA's, (0, 0) of all others."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" and torch.version.hip is None else (0, 0)


def _import_offered() -> None:
    while _offered:
        module = _offered.pop()
        try:
            import_module(module)
        except ImportError as error:
            _refused.append(f"{module} cannot be imported: {error}.")


def kernels() -> tuple[list[str], list[str]]:
    """The definitions that have a kernel here, and why modules of kernels could not be imported."""
    _import_offered()
    return sorted(_kernels), list(_refused)


def asks_for_kernels() -> bool:
    """Return True if kernels are asked for on a CPU too, by `using("triton")` or by Triton's interpreter."""
    return _requested == "triton" or (_INTERPRETED and _requested == "auto")


def autocasts(kind: str) -> bool:
    """Return True if autocast is on for that type of device. The meta device has none, and torch's own raises there."""
    return kind != "meta" and torch.is_autocast_enabled(kind)


def without_autocast(kind: str) -> AbstractContextManager[Any]:
    """Switch autocast off for that type of device."""
    return nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False)


def eager() -> bool:
    """Whether only the definitions themselves may run."""
    return _requested == "eager"


@contextmanager
def using(backend: Backend) -> Iterator[None]:
    """Inside: 'eager' uses no kernels, 'triton' fails where a kernel cannot serve, 'auto' takes those that fit.

    In all threads, for backward passes run in threads of their own.
    """
    global _requested
    if backend not in get_args(Backend):
        raise InvalidArgument(f"backend={backend!r}: expected one of {', '.join(map(repr, get_args(Backend)))}.")
    if backend == "triton":
        _import_offered()  # here and not inside of a trace
    before, _requested = _requested, backend
    try:
        yield
    finally:
        _requested = before
