"""The choice between eager code and kernels.

The eager code is the definition and runs everywhere. A kernel is registered under the name of one definition and
replaces it for the tensors it fits.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from .errors import BackendUnavailable, InvalidArgument

ADA = (8, 9)  # compute capability of the first NVIDIA devices that multiply FP8
Backend = Literal["auto", "eager", "triton"]
"""Name of a backend: `"auto"` uses the kernels that fit, `"eager"` none, `"triton"` requires them."""
# Triton's interpreter runs kernels on a CPU, slowly. A process that sets this variable wants kernels everywhere.
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


class _Kernel(NamedTuple):
    call: Any  # a function, or a tuple of functions that belong together
    fits: Callable[..., bool]


_kernels: dict[str, _Kernel] = {}
_offered: list[str] = []  # modules with kernels that are not imported yet
_import_errors: list[str] = []
_requested: Backend = "auto"


def register_kernel(name: str, kernel: Any, fits: Callable[..., bool]) -> None:
    """Register a kernel that replaces the eager definition `name`.

    Args:
        name: The name of the definition, as in `chosen(name, …)`. A second kernel of the same name replaces the first.
        kernel: A function with the arguments of the definition, or a tuple of functions that belong together.
        fits: Called with the tensor and the further arguments of `chosen`; returns True if the kernel can serve them.

    Example:
        >>> flipout.backend.register_kernel("doubled", doubled_on_gpu, fits=lambda x: x.is_cuda)
    """
    _kernels[name] = _Kernel(kernel, fits)


def offer(module: str) -> None:
    """Name a module that registers kernels. It is imported at the first tensor that a kernel may serve."""
    _offered.append(module)


def chosen(name: str, tensor: Tensor, *details: Any, required: bool = True) -> Any:
    """Return the kernel for the definition `name` on this tensor, or None to use the definition itself.

    With the backend `"auto"`, code that torch.compile traces gets no kernels: the compiler fuses the eager code.

    Args:
        name: The name of the definition.
        tensor: A tensor that the definition works on, of any shape. Its device decides.
        *details: Further arguments for the `fits` of the kernel.
        required: Whether `choosing("triton")` fails if no kernel fits. A kernel that only joins steps which have
            kernels themselves is not required.

    Returns:
        What was registered as the kernel, or None.

    Raises:
        BackendUnavailable: `choosing("triton")` is in force, the kernel is `required`, and none fits.

    Example:
        >>> kernel = flipout.backend.chosen("doubled", x)
        >>> y = kernel(x) if kernel else 2 * x
    """
    if _requested == "eager":
        return None
    if _requested == "auto" and (not (tensor.is_cuda or _INTERPRETED) or torch.compiler.is_compiling()):
        return None
    if _offered:
        _import_offered()
    kernel = _kernels.get(name)
    if kernel is not None and kernel.fits(tensor, *details):
        return kernel.call
    if _requested == "auto" or not required:
        return None
    arguments = ", ".join(map(str, (f"a tensor on {tensor.device}", *details)))
    why = "".join(f" {reason}" for reason in _import_errors)
    raise BackendUnavailable(
        f"backend '{_requested}' was requested, but has no kernel for '{name}' with {arguments}.{why} Kernels serve "
        "CUDA tensors, or tensors on any device in Triton's interpreter (TRITON_INTERPRET=1 before the process "
        "starts). Move the model to a CUDA device, or use flipout.backend.choosing('auto'), which falls back to the "
        "eager code."
    )


@cache
def capability(device: torch.device) -> tuple[int, int]:
    """Return the compute capability of an NVIDIA device, (0, 0) for other devices."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" and torch.version.hip is None else (0, 0)


def _import_offered() -> None:
    while _offered:
        module = _offered.pop()
        try:
            import_module(module)
        except (ImportError, AttributeError, RuntimeError, OSError) as error:  # a Triton of another version, or broken
            _import_errors.append(f"{module} cannot be imported: {error}.")


def kernels() -> tuple[list[str], list[str]]:
    """Return the definitions that have a kernel, and why modules with kernels could not be imported."""
    _import_offered()
    return sorted(_kernels), list(_import_errors)


def asks_for_kernels() -> bool:
    """Return True if kernels are wanted on a CPU too: inside `choosing("triton")` or in Triton's interpreter."""
    return _requested == "triton" or (_INTERPRETED and _requested == "auto")


def is_autocast_on(kind: str) -> bool:
    """Return True if autocast is on for that type of device. torch's own function raises for the meta device."""
    return kind != "meta" and torch.is_autocast_enabled(kind)


def without_autocast(kind: str) -> AbstractContextManager[Any]:
    """Switch autocast off for that type of device."""
    return nullcontext() if kind == "meta" else torch.autocast(kind, enabled=False)


def requested() -> Backend:
    """Return the backend that `choosing` asks for."""
    return _requested


def is_eager() -> bool:
    """Return True inside `choosing("eager")`, where no kernel may run."""
    return _requested == "eager"


@contextmanager
def choosing(backend: Backend) -> Iterator[None]:
    """Choose the backend for all code inside the context.

    The choice holds in all threads, since autograd runs backward passes in threads of its own.

    Args:
        backend: `"auto"` uses the kernels that fit, `"eager"` none. `"triton"` fails where a kernel cannot serve.

    Raises:
        InvalidArgument: There is no backend of that name.
        BackendUnavailable: Raised inside the context, by an operation for which `"triton"` has no kernel.

    Example:
        >>> with flipout.backend.choosing("eager"):
        ...     y = model(x)
    """
    global _requested
    if backend not in get_args(Backend):
        raise InvalidArgument(f"backend={backend!r}: expected one of {', '.join(map(repr, get_args(Backend)))}.")
    if backend == "triton":
        _import_offered()  # now, since imports inside a trace would be traced
    previous, _requested = _requested, backend
    try:
        yield
    finally:
        _requested = previous


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Give `register_kernel` and `choosing` under the names that they had in version 0.3, too."""
        renamed = {"register": register_kernel, "using": choosing}
        if name in renamed:
            return renamed[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
