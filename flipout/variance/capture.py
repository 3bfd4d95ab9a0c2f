"""Many small kernels as one launch: a function of tensors, captured as a CUDA graph."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Captured:
    """`function(*tensors)` for tensors of the shapes first seen. Its results are valid until the next call.

    Without a CUDA device, or where the function cannot be captured (it waits for the device, say), it is simply called.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.graph: torch.cuda.CUDAGraph | None = None
        self.capturable = True
        self.held: tuple[Tensor, ...] = ()
        self.result: Any = None

    def __call__(self, *tensors: Tensor) -> Any:
        same = self.graph is not None and [t.shape for t in tensors] == [t.shape for t in self.held]
        if not self.capturable or tensors[0].device.type != "cuda" or (self.graph is not None and not same):
            return self.function(*tensors)
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
            self.graph, self.result, self.held = None, None, ()
            torch.cuda.empty_cache()

    def _capture(self, tensors: tuple[Tensor, ...]) -> bool:
        self.held = tuple(t.clone() for t in tensors)
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):  # lazily made handles, plans and kernels may not be made inside of a capture
                    self.function(*self.held)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.result = self.function(*self.held)
        except RuntimeError:
            torch.cuda.synchronize()
            self.capturable = False
            return False
        self.graph = graph
        return True
