"""`flipout.checkpoint`: a checkpoint that carries its draws."""

import threading
from collections.abc import Callable
from typing import Any

import torch.utils.checkpoint


class _Thread(threading.local):
    """The tape that runs in this thread: on a GPU, a backward pass recomputes in a thread of autograd's."""

    def __init__(self) -> None:
        self.tape: Tape | None = None


this_thread = _Thread()


class Tape:
    """What perturbed layers decided inside a function, in order, to be decided again when it is recomputed."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.recorded = False
        self.position = 0

    def __call__(self, decide: Callable[[], Any]) -> Any:
        if not self.recorded:
            self.values.append(decide())
        self.position += 1
        return self.values[self.position - 1]

    def run(self, function: Callable, *args: Any, **kwargs: Any) -> Any:
        outer, this_thread.tape, self.position = this_thread.tape, self, 0
        try:
            return function(*args, **kwargs)
        finally:
            this_thread.tape, self.recorded = outer, True


def replaying() -> bool:
    """Whether a `flipout.checkpoint` is around this call, which carries its draws."""
    return this_thread.tape is not None


def decided(decide: Callable[[], Any]) -> Any:
    """`decide()`, or what it was when the function that is being recomputed ran first."""
    tape = this_thread.tape
    return decide() if tape is None else tape(decide)


def checkpoint(function: Callable, *args: Any, use_reentrant: bool = False, **kwargs: Any) -> Any:
    """`torch.utils.checkpoint.checkpoint`, whose recomputation sees the draws of its forward.

    torch's own finds them by autograd's numbering, and says where it cannot; this one carries them along.
    """
    tape = Tape()

    def replayed(*inputs: Any, **options: Any) -> Any:
        return tape.run(function, *inputs, **options)

    return torch.utils.checkpoint.checkpoint(replayed, *args, use_reentrant=use_reentrant, **kwargs)
