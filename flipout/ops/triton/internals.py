"""Private interfaces of torch and Triton, all in this file.

They were read in torch 2.11 and 2.13 and in Triton 3.6.0. Where one of them is missing or has another signature, and
under any other Triton, `prepare` returns None. Every launch then goes through Triton's own `kernel[grid](…)`: without
an error and with equal results, but with Triton's dispatch, some 45 µs a launch on the host of an H200 (docs/speed.md).
"""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import triton
from triton import knobs, runtime


def _public_stream(device: int) -> int:
    return torch.cuda.current_stream(device).cuda_stream


# torch.cuda's own versions first make sure that CUDA is initialised, which holding a CUDA tensor proves.
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _public_stream)
INTERPRETED = bool(getattr(knobs.runtime, "interpret", os.environ.get("TRITON_INTERPRET") == "1"))
_IS_KNOWN = triton.__version__.startswith("3.6.") and all(
    hasattr(knobs.runtime, name) for name in ("launch_enter_hook", "launch_exit_hook")
)
_LAUNCHER = ["self", "gridX", "gridY", "gridZ", "stream", "function", "args"]  # parameters of Triton's launcher


class PreparedLaunch(NamedTuple):
    """A compiled kernel, ready to be started as start(*grid, stream(device), *details, *arguments, *trailing)."""

    compiled: Any
    start: Callable[..., object]
    stream: Callable[[int], int]
    details: tuple[Any, ...]
    trailing: list[Any]


def prepare(
    kernel: Any, compiled: Any, device: int, leading: int, numbers: Sequence[int], constants: Mapping[str, Any]
) -> PreparedLaunch | None:
    """Return what starts a compiled kernel without Triton's dispatch, or None if an interface is not as expected.

    A start is handed the kernel's first `leading` arguments; `numbers` and `constants` follow and stay as they are.
    """
    if not _IS_KNOWN:
        return None
    try:
        run, details = compiled.run, (compiled.packed_metadata, None, None, None)
        if list(inspect.signature(type(run).__call__).parameters) != _LAUNCHER:
            return None
        if torch.version.hip is None and not (run.global_scratch_size or run.profile_scratch_size):
            # Past the launcher's Python, which only allocates scratch memory, to its function in C.
            details = run.launch_cooperative_grid, run.launch_pdl, None, None, *details
            run = run.launch
        names = kernel.arg_names[leading + len(numbers) :]
        trailing = [*numbers, *(constants[name] for name in names)]
        if not (callable(run) and hasattr(type(compiled), "__getitem__") and isinstance(raw_stream(device), int)):
            return None
        return PreparedLaunch(compiled, run, raw_stream, (compiled.function, *details), trailing)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def is_watched() -> bool:
    """Return True if something, such as Triton's profiler, has asked to be told of launches."""
    before, after = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return bool(getattr(before, "calls", before) or getattr(after, "calls", after))


def specialised(kernel: Any, count: int) -> list[int]:
    """Return which of the first `count` arguments a kernel may be compiled for, by their place.

    Integers that are annotated and not specialised on are left out. If Triton does not say, no argument is.
    """
    try:
        fixed = [parameter.do_not_specialize and parameter.annotation_type for parameter in kernel.params]
        return [place for place in range(count) if not fixed[place]]
    except (AttributeError, IndexError):
        return list(range(count))


def require_driver() -> None:
    """Raise ImportError if Triton has no driver here, or no C compiler to build its launchers."""
    try:
        runtime.driver.active.get_current_target()
    except Exception as error:
        raise ImportError(f"Triton cannot run here ({error})") from error
