"""Replay a function of tensors as one CUDA graph. Every replay draws new noise."""

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from ._cuda_graphs import finish_failed_capture, first_cause, no_garbage_collection, prepare_autograd
from .errors import InvalidArgument

_WARM_UP_CALLS = 2  # calls before a capture, in which torch and Triton create handles, plans and kernels
_MAX_TRIES = 3  # most captures that are tried; each needs its own warm-up


class Captured:
    """A function of tensors that `capture` made.

    Its results stay valid until the next call. `graph` is the CUDA graph, or None before the capture.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.graph: torch.cuda.CUDAGraph | None = None
        self._calls: Counter[Any] = Counter()  # since the last capture, by kind of inputs
        self._failures = 0
        self._can_capture = torch.cuda.is_available()
        self._inputs: list[Tensor | None] = []  # the graph reads these
        self._layout: Any = None
        self._result: Any = None

    def __call__(self, *args: Any, **named: Any) -> Any:
        if named:
            raise InvalidArgument(
                f"a captured function was given {', '.join(named)} by name; expected tensors in order, without names."
            )
        tensors, layout = tree_flatten(args)
        for value in tensors:
            if not isinstance(value, Tensor | None):
                raise InvalidArgument(
                    f"a captured function was given {type(value).__name__} {value!r:.40}; expected tensors or None, "
                    "also in tuples. A graph keeps every other value as it was at the capture. Make it a tensor, or "
                    "let the function close over it."
                )
        on_device = all(tensor is None or tensor.is_cuda for tensor in tensors)
        if not self._can_capture or not on_device or self._has_other_graph(tensors, layout):
            return self.function(*args)
        if self.graph is None:
            # Plans belong to shapes and dtypes, handles to threads. Calls of another kind warm up nothing for this one.
            kind = threading.get_ident(), layout, *_kinds(tensors)
            self._calls[kind] += 1
            if self._calls[kind] <= _WARM_UP_CALLS:
                return self._warm_up(args, tensors)
            if not self._capture(tensors, layout):
                return self.function(*args)
        assert self.graph is not None
        for graph_input, tensor in zip(self._inputs, tensors, strict=True):
            if graph_input is not None:
                graph_input.copy_(tensor)
        self.graph.replay()
        return self._result

    def close(self) -> None:
        """Free the memory of the graph."""
        if self.graph is not None:
            torch.cuda.synchronize()
            self.graph.reset()
            self.graph, self._result, self._inputs = None, None, []
            torch.cuda.empty_cache()

    def _has_other_graph(self, tensors: list[Tensor | None], layout: Any) -> bool:
        """Return True if the graph was captured for inputs of another kind, as with a short last batch."""
        return self.graph is not None and (layout != self._layout or _kinds(tensors) != _kinds(self._inputs))

    def _warm_up(self, args: tuple[Any, ...], tensors: list[Tensor | None]) -> Any:
        """Call the function on a stream other than the default one, as a capture does."""
        device = next((tensor.device for tensor in tensors if tensor is not None), None)
        if torch.cuda.current_stream() != torch.cuda.default_stream():
            prepare_autograd(device)
            return self.function(*args)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            prepare_autograd(device)
            result = self.function(*args)
        torch.cuda.current_stream().wait_stream(side)
        return result

    def _capture(self, tensors: list[Tensor | None], layout: Any) -> bool:
        """Capture the graph. If that fails, warn and return False."""
        self._inputs, self._layout = [None if tensor is None else tensor.clone() for tensor in tensors], layout
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        # cuBLAS has one workspace per captured stream. Graphs that replay at the same time must not share one.
        stream = None if current == torch.cuda.default_stream() else current
        outer = sys.exception()
        self._calls.clear()
        try:
            # If a capture fails, torch.cuda.graph does not restore the current stream. torch.cuda.stream does.
            with no_garbage_collection(), torch.cuda.stream(current), torch.cuda.graph(graph, stream=stream):
                self._result = self.function(*tree_unflatten(self._inputs, layout))
        except RuntimeError as error:
            torch.cuda.synchronize()
            finish_failed_capture()
            self._inputs, self._result, self._failures = [], None, self._failures + 1
            self._can_capture = self._failures < _MAX_TRIES
            until = f"until the next try, after {_WARM_UP_CALLS} more calls" if self._can_capture else "from now on"
            warnings.warn(
                f"flipout.capture: the function cannot be captured (try {self._failures} of {_MAX_TRIES}) and runs "
                f"uncaptured {until}: {first_cause(error, outer)}",
                stacklevel=3,
            )
            return False
        self.graph = graph
        return True


def _kinds(tensors: list[Tensor | None]) -> list[tuple | None]:
    """Return what a graph is bound to: the shape and dtype of each input."""
    return [None if tensor is None else (tensor.shape, tensor.dtype) for tensor in tensors]


def capture(function: Callable[..., Any]) -> Captured:
    """Replay a function as one CUDA graph, so that many small kernels cost one launch.

    The first two calls with inputs of one kind run as usual. The third is captured, and later ones replay the graph;
    every replay draws new noise. Inputs of another shape or dtype run uncaptured. Without a GPU the function is simply
    called. If a capture fails, a warning gives the cause and the function runs uncaptured; the capture is tried again
    after two more calls, three times in all.

    Args:
        function: A whole training step, for example: `zero_grad`, forward, backward and the optimiser, with
            `capturable=True` if the optimiser has that option. Its inputs are tensors or None, also in tuples, of any
            shape, and are copied into the graph. Numbers that change, such as a learning rate, must be tensors.

    Returns:
        A callable. The next call overwrites its results and the gradients that it leaves.

    Raises:
        InvalidArgument: When the result is called with a value that is not a tensor, or with named arguments.

    Example:
        >>> step = flipout.capture(step)
        >>> for x, y in batches:
        ...     loss = step(x, y)
    """
    return Captured(function)
