"""What a CUDA graph capture needs before it starts and after it fails."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch


def prepare_autograd(device: torch.device | None) -> None:
    """Give autograd's thread for this device its CUDA context and its cuBLAS handle.

    The thread creates both when it first needs them, and cuBLAS cannot create a handle during a capture. A product
    alone would find no context and warn. The gradient of `square` is a kernel of torch's own; it runs first and
    creates the context.
    """
    # If this fails, a step that needs it fails too. Some settings of determinism refuse products.
    with suppress(RuntimeError), torch.inference_mode(False), torch.enable_grad():
        x = torch.ones(16, 16, device="cuda" if device is None else device, dtype=torch.float32, requires_grad=True)
        with torch.autocast(x.device.type, enabled=False):
            torch.autograd.grad((x @ x).square().sum(), x)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect garbage now and not inside: a graph that frees its memory during a capture would break the capture."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def finish_failed_capture() -> None:
    """Capture an empty graph. Until a capture ends well, torch's generator refuses to draw."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros((), device="cuda")


def first_cause(error: BaseException, outer: BaseException | None) -> str:
    """Return the message of the first error. Ending a broken capture raises another error, which hides it.

    Args:
        error: What the capture raised.
        outer: The exception that the caller was handling already, if any. The search stops there.
    """
    while error.__context__ is not None and error.__context__ is not outer:
        error = error.__context__
    return str(error).strip().partition("\n")[0] or type(error).__name__
