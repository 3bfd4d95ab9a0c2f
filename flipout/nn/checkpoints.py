"""`flipout.checkpoint`: activation checkpointing that recomputes under the draws of the forward pass."""

import threading
from collections.abc import Callable
from typing import Any

import torch.utils.checkpoint


class _ThreadLog(threading.local):
    """The log in use in this thread. On a GPU, autograd recomputes in a thread of its own."""

    def __init__(self) -> None:
        self.decisions: DecisionLog | None = None


this_thread = _ThreadLog()


class DecisionLog:
    """What perturbed layers decided inside a function, in order. A recomputation reads the log instead of deciding."""

    def __init__(self) -> None:
        self.decisions: list[Any] = []
        self.is_recorded = False
        self.position = 0

    def __call__(self, decide: Callable[[], Any]) -> Any:
        if not self.is_recorded:
            self.decisions.append(decide())
        self.position += 1
        return self.decisions[self.position - 1]

    def run(self, function: Callable, *args: Any, **kwargs: Any) -> Any:
        """Call the function with this log in use."""
        outer, this_thread.decisions, self.position = this_thread.decisions, self, 0
        try:
            return function(*args, **kwargs)
        finally:
            this_thread.decisions, self.is_recorded = outer, True


def in_checkpoint() -> bool:
    """Return True inside `flipout.checkpoint`, where a recomputation reuses the recorded draws."""
    return this_thread.decisions is not None


def decide_once(decide: Callable[[], Any]) -> Any:
    """Return `decide()`, or in a recomputation what it returned in the forward pass."""
    log = this_thread.decisions
    return decide() if log is None else log(decide)


def checkpoint(function: Callable, *args: Any, use_reentrant: bool = False, **kwargs: Any) -> Any:
    """Run a function without storing its activations, and recompute them in backward under the same draw.

    `torch.utils.checkpoint.checkpoint` also works with perturbed layers as long as the draw can be found again from
    autograd's numbering, and raises `AmbiguousReplay` if not. This function always finds it.

    Args:
        function: The function to run, such as a block of the model.
        *args: Its arguments.
        use_reentrant: As in torch.
        **kwargs: Keyword arguments of the function, and the options of torch's checkpoint.

    Returns:
        What the function returns.

    Example:
        >>> y = flipout.checkpoint(model.block, x)
    """
    log = DecisionLog()

    def replayed(*inputs: Any, **options: Any) -> Any:
        return log.run(function, *inputs, **options)

    return torch.utils.checkpoint.checkpoint(replayed, *args, use_reentrant=use_reentrant, **kwargs)
