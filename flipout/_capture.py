"""capture(step): many small kernels as one launch. Every replay draws anew."""

import gc
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from .errors import InvalidArgument

_FIRST = 2  # calls of one kind before the capture, in which torch and Triton make their handles, plans and kernels
_TRIES = 3  # captures; each but the first after as many calls again


class Captured:
    """A function of tensors, in tuples or not, that becomes a CUDA graph at the third call with inputs of one kind. Its
    results are valid until the next call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.graph: torch.cuda.CUDAGraph | None = None
        self.calls: Counter[Any] = Counter()  # by kind, since the last capture
        self.failed = 0  # captures
        self.capturable = torch.cuda.is_available()
        self.held: list[Tensor | None] = []
        self.layout: Any = None
        self.result: Any = None

    def __call__(self, *given: Any, **named: Any) -> Any:
        if named:
            raise InvalidArgument(
                f"a captured function was given {', '.join(named)} by name; expected tensors in order, without names."
            )
        parts, layout = tree_flatten(given)
        for part in parts:
            if not isinstance(part, Tensor | None):
                raise InvalidArgument(
                    f"a captured function was given {type(part).__name__} {part!r:.40}; expected tensors (or None), in "
                    "tuples or not, since a graph keeps every other value of its capture. Make it a tensor, or let the "
                    "function close over it."
                )
        on_device = all(part is None or part.is_cuda for part in parts)
        if not self.capturable or not on_device or self._other(parts, layout):
            return self.function(*given)
        if self.graph is None:
            # Plans are made for shapes and dtypes, handles for threads: other calls prepare nothing for this one.
            kind = threading.get_ident(), layout, *_kinds(parts)
            self.calls[kind] += 1
            if self.calls[kind] <= _FIRST:
                return self._first(given, parts)
            if not self._capture(parts, layout):
                return self.function(*given)
        assert self.graph is not None
        for held, part in zip(self.held, parts, strict=True):
            if held is not None:
                held.copy_(part)
        self.graph.replay()
        return self.result

    def close(self) -> None:
        """Give the graph's memory back."""
        if self.graph is not None:
            torch.cuda.synchronize()
            self.graph.reset()
            self.graph, self.result, self.held = None, None, []
            torch.cuda.empty_cache()

    def _other(self, parts: list[Tensor | None], layout: Any) -> bool:
        """Whether the graph is one for other shapes: a last, short batch, say."""
        return self.graph is not None and (layout != self.layout or _kinds(parts) != _kinds(self.held))

    def _first(self, given: tuple[Any, ...], parts: list[Tensor | None]) -> Any:
        device = next((part.device for part in parts if part is not None), None)
        if torch.cuda.current_stream() != torch.cuda.default_stream():
            _prepare(device)
            return self.function(*given)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            _prepare(device)
            result = self.function(*given)
        torch.cuda.current_stream().wait_stream(side)
        return result

    def _capture(self, parts: list[Tensor | None], layout: Any) -> bool:
        self.held, self.layout = [None if part is None else part.clone() for part in parts], layout
        graph, own = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        # cuBLAS has a workspace for each stream that was captured: graphs that replay at once must not share one.
        stream = None if own == torch.cuda.default_stream() else own
        outer = sys.exception()
        self.calls.clear()
        try:
            # torch.cuda.graph leaves its stream the current one where a capture fails: torch.cuda.stream sets it back.
            with _undisturbed(), torch.cuda.stream(own), torch.cuda.graph(graph, stream=stream):
                self.result = self.function(*tree_unflatten(self.held, layout))
        except RuntimeError as error:
            torch.cuda.synchronize()
            _end_capture()
            self.held, self.result, self.failed = [], None, self.failed + 1
            self.capturable = self.failed < _TRIES
            then = f"until it is tried again after {_FIRST} more calls" if self.capturable else "from now on"
            warnings.warn(
                f"flipout.capture: it cannot be captured (try {self.failed} of {_TRIES}), and runs as it is {then}: "
                f"{_cause(error, outer)}",
                stacklevel=3,
            )
            return False
        self.graph = graph
        return True


def _kinds(parts: list[Tensor | None]) -> list[tuple | None]:
    return [None if part is None else (part.shape, part.dtype) for part in parts]


def _prepare(device: torch.device | None) -> None:
    """Give autograd's thread of a device its CUDA context and its cuBLAS handle.

    The thread makes both where it first needs them, and inside of a capture cuBLAS cannot make a handle. A product
    alone would find no context, and warn: the gradient of `square`, a kernel of torch's own, runs before it and brings
    one.
    """
    # What fails here fails in the step too if it needs it; products are refused under some settings of determinism.
    with suppress(RuntimeError), torch.inference_mode(False), torch.enable_grad():
        x = torch.ones(16, 16, device="cuda" if device is None else device, dtype=torch.float32, requires_grad=True)
        with torch.autocast(x.device.type, enabled=False):
            torch.autograd.grad((x @ x).square().sum(), x)


def _cause(error: BaseException, outer: BaseException | None) -> str:
    """What went wrong first: the end of a broken capture is an error of its own, which does not say."""
    while error.__context__ is not None and error.__context__ is not outer:
        error = error.__context__
    return str(error).strip().partition("\n")[0] or type(error).__name__


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Other graphs that nobody holds any longer give their memory back now; within a capture that would break it."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _end_capture() -> None:
    """torch's generator believes itself captured, and refuses to draw, until a capture comes to its end."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros((), device="cuda")


def capture(function: Callable[..., Any]) -> Captured:
    """`function(*inputs)`, replayed as one CUDA graph from the third call with inputs of one kind on; without a GPU it
    is simply called.

    A training step with all it does: zero_grad, forward, backward, and the optimiser (`capturable=True` where it has
    that). Inputs are tensors or None, in tuples or not, and are copied in; numbers that change, a learning rate say,
    have to be tensors. Results, and the
    gradients it leaves, are overwritten by the next call. Inputs of other shapes are served without the graph.

    If a capture fails, a warning says why, and the function runs uncaptured. The capture is tried again after two more
    calls, three times in all.
    """
    return Captured(function)
