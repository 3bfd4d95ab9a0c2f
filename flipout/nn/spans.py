"""What was open around a call: forward passes, and the contexts `hold`, `sampling` and `using`.

A context belongs to the thread and the task (asyncio) that entered it, and to the layers of its model. A task that is
started inside a context inherits it; a thread does not, so a layer that is called there is refused.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ..draws.passes import Pass
from ..errors import InterleavedContexts
from ..schemes import Scheme

if TYPE_CHECKING:
    from .root import Root


def recomputing() -> bool:
    """Inside a backward pass: a forward that runs (or is compiled) there is a checkpoint's recomputation."""
    return torch._C._current_graph_task_id() != -1


# torch.compiler.assume_constant_result, without its import of the whole compiler.
recomputing._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


def _now() -> int:
    """The number that the next autograd node will have. torch counts them, in each thread."""
    return 0 if torch.compiler.is_compiling() else torch.autograd._get_sequence_nr()


@dataclass(eq=False)
class Span:
    """What was open while a run of autograd nodes was made: a root's forward pass or a context."""

    session: Pass | None = None
    keys: dict[Any, dict[str, int]] | None = None  # of a context: its layers' plans → what their signs are keyed by
    scheme: Scheme | None = None  # of `using`
    roots: "tuple[Root, ...]" = ()  # of a context: the roots of its layers
    start: int = field(default_factory=_now)
    end: int | None = None
    thread: int = field(default_factory=threading.get_ident)
    in_backward: bool = field(default_factory=recomputing)
    is_mixed: bool = False  # entered while another task of the same thread had a context open

    def close(self) -> None:
        self.end = _now()

    def covers(self, node: int) -> bool:
        return self.start <= node and (self.end is None or node < self.end)


class _Thread(threading.local):
    """The contexts that are open in this thread, for code that torch.compile traces: it cannot read a ContextVar.

    Dynamo guards on an attribute of a `threading.local` only if it stands in the instance, hence `__init__`: it would
    take a default of the class for a constant.
    """

    def __init__(self) -> None:
        self.spans: tuple[Span, ...] = ()


_thread = _Thread()
_task: ContextVar[tuple[Span, ...]] = ContextVar("flipout_spans", default=())


def open_spans() -> tuple[Span, ...]:
    """The contexts around this call, the innermost last."""
    if not torch.compiler.is_compiling():
        return _task.get()
    for span in _thread.spans:
        if span.is_mixed:
            raise InterleavedContexts(
                "A compiled model was called while several tasks of one thread hold or sample, and compiled code "
                "cannot tell tasks apart. Call the model uncompiled there, or run the tasks one after the other."
            )
    return _thread.spans


@contextmanager
def opened(span: Span) -> Iterator[None]:
    """Open a context for this thread and task."""
    assert span.keys is not None
    for root in span.roots:
        root.remember(span)
    in_task, in_thread = _still_open(_task.get()), _still_open(_thread.spans)
    span.is_mixed = in_task != in_thread
    _task.set((*in_task, span))
    _thread.spans = (*in_thread, span)
    for plan in span.keys:
        plan.opened.append(span)
    try:
        yield
    finally:
        span.close()
        if span.session is not None:
            span.session.close()
        around = _task.get()
        _task.set(_still_open(around))
        _thread.spans = _still_open(_thread.spans)
        for plan in span.keys:
            plan.opened.remove(span)
        _refuse_interleaved(span, around)


def _still_open(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Without those that ended, here or in another thread (a generator that is collected there)."""
    return tuple(span for span in spans if span.end is None)


def _refuse_interleaved(span: Span, around: tuple[Span, ...]) -> None:
    """Refuse to leave a context before one that was entered later, on the same layers."""
    if span not in around:
        return
    for later in around[around.index(span) + 1 :]:
        shared = next((plan for plan in span.keys or () if plan in (later.keys or ())), None)
        if later.end is None and shared is not None:
            raise InterleavedContexts(
                f"A context on {shared.label or 'a layer'} ends while a later one on the same layer is open, so calls "
                "in between saw the later one. Generators that take turns, each inside `hold`, `sampling` or `using`, "
                "see each other's: give each a copy of the model, copy.deepcopy(model)."
            )
