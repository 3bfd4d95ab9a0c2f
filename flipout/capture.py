"""capture(step): many small kernels as one launch. Every replay draws anew."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .errors import InvalidArgument

_FIRST = 2  # calls before the capture, in which torch and Triton make their handles, plans and kernels


class Captured:
    """A function of tensors that becomes a CUDA graph at its third call. Its results are valid until the next call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0
        self.capturable = torch.cuda.is_available()
        self.held: tuple[Tensor, ...] = ()
        self.result: Any = None

    def __call__(self, *tensors: Tensor) -> Any:
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise InvalidArgument(
                    f"a captured function was given {type(tensor).__name__} {tensor!r:.40}; expected tensors, since a "
                    "graph keeps every other value of its capture. Make it a tensor, or let the function close over it."
                )
        if not self.capturable or not all(tensor.is_cuda for tensor in tensors) or self._other(tensors):
            return self.function(*tensors)
        if self.calls < _FIRST:
            return self._first(tensors)
        if self.graph is None and not self._capture(tensors):
            return self.function(*tensors)
        assert self.graph is not None
        for held, given in zip(self.held, tensors, strict=True):
            held.copy_(given)
        self.graph.replay()
        return self.result

    def close(self) -> None:
        """Give the graph's memory back."""
        if self.graph is not None:
            torch.cuda.synchronize()
            self.graph.reset()
            self.graph, self.result, self.held, self.calls = None, None, (), 0
            torch.cuda.empty_cache()

    def _other(self, tensors: tuple[Tensor, ...]) -> bool:
        """Whether the graph is one for other shapes: a last, short batch, say."""
        own = [(tensor.shape, tensor.dtype) for tensor in tensors]
        return self.graph is not None and own != [(tensor.shape, tensor.dtype) for tensor in self.held]

    def _first(self, tensors: tuple[Tensor, ...]) -> Any:
        self.calls += 1
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            result = self.function(*tensors)
        torch.cuda.current_stream().wait_stream(side)
        return result

    def _capture(self, tensors: tuple[Tensor, ...]) -> bool:
        self.held = tuple(tensor.clone() for tensor in tensors)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self.result = self.function(*self.held)
        except RuntimeError as error:
            torch.cuda.synchronize()
            _end_capture()
            self.capturable = False
            why = str(error).strip().partition("\n")[0]
            warnings.warn(f"flipout.capture: it cannot be captured, and runs as it is: {why}", stacklevel=3)
            return False
        self.graph = graph
        return True


def _end_capture() -> None:
    """torch's generator believes itself captured, and refuses to draw, until a capture comes to its end."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros((), device="cuda")


def capture(function: Callable[..., Any]) -> Captured:
    """`function(*tensors)`, replayed as one CUDA graph from its third call on; elsewhere it is simply called.

    A training step with all it does: zero_grad, forward, backward, and the optimiser (`capturable=True` where it has
    that). Inputs are copied in; numbers that change, a learning rate say, have to be tensors. Results, and the
    gradients it leaves, are overwritten by the next call. Inputs of other shapes are served without the graph.
    """
    return Captured(function)
