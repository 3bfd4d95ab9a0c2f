"""Spans: the forward passes and the contexts (`hold`, `sampling`, `using`) that are open around a call.

A context belongs to the layers of its model, and to the thread and the asyncio task that entered it. A task that starts
inside a context inherits it. A thread does not, so a layer that is called there is refused.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from .._torch_internals import constant_when_compiled, graph_task_id, next_node_number
from ..draws.passes import Pass
from ..errors import InterleavedContexts
from ..schemes import Scheme

if TYPE_CHECKING:
    from .root import Root


@constant_when_compiled
def is_recomputing() -> bool:
    """Return True inside a backward pass: a forward that runs or is compiled there recomputes a checkpoint."""
    return graph_task_id() != -1


def _next_node() -> int:
    """Return the number of the next autograd node. Each thread has its own count."""
    return 0 if torch.compiler.is_compiling() else next_node_number()


@dataclass(eq=False)
class Span:
    """A forward pass of a root, or a context, with the autograd nodes that were created while it was open."""

    session: Pass | None = None
    keys: dict[Any, dict[str, int]] | None = None  # of a context: plan of each layer → keys of its Parameters
    scheme: Scheme | None = None  # of `using`
    roots: "tuple[Root, ...]" = ()  # of a context: the roots of its layers
    start: int = field(default_factory=_next_node)
    end: int | None = None
    thread: int = field(default_factory=threading.get_ident)
    in_backward: bool = field(default_factory=is_recomputing)
    is_mixed: bool = False  # entered while another task of the same thread had a context open

    def close(self) -> None:
        """End the span before the next autograd node."""
        self.end = _next_node()

    def covers(self, node: int) -> bool:
        """Return True if the span was open when the node of that number was created."""
        return self.start <= node and (self.end is None or node < self.end)


class _ThreadSpans(threading.local):
    """The open contexts of this thread, for code that torch.compile traces: dynamo cannot read a ContextVar.

    The attribute is set in `__init__` because dynamo takes a class attribute for a constant and guards only on an
    attribute of the instance.
    """

    def __init__(self) -> None:
        self.spans: tuple[Span, ...] = ()


_thread = _ThreadSpans()
_task: ContextVar[tuple[Span, ...]] = ContextVar("flipout_spans", default=())


spans_of_task = _task.get  # `open_spans` of code that is not compiled: a call of C


def open_spans() -> tuple[Span, ...]:
    """Return the contexts around this call, innermost last."""
    if not torch.compiler.is_compiling():
        return _task.get()
    for span in _thread.spans:
        if span.is_mixed:
            raise InterleavedContexts(
                "A compiled model was called while several tasks of one thread have a context open (`hold`, `sampling` "
                "or `using`), and compiled code cannot tell tasks apart. Call the model uncompiled there, or run the "
                "tasks one after the other."
            )
    return _thread.spans


@contextmanager
def open_span(span: Span) -> Iterator[None]:
    """Open a context for this thread and task."""
    assert span.keys is not None
    for root in span.roots:
        root.history.remember(span)
    in_task, in_thread = _still_open(_task.get()), _still_open(_thread.spans)
    span.is_mixed = in_task != in_thread
    _task.set((*in_task, span))
    _thread.spans = (*in_thread, span)
    for plan in span.keys:
        plan.open_contexts.append(span)
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
            plan.open_contexts.remove(span)
        _refuse_interleaved(span, around)


def _still_open(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Drop the spans that have ended, here or in another thread that collected their generator."""
    return tuple(span for span in spans if span.end is None)


def _refuse_interleaved(span: Span, around: tuple[Span, ...]) -> None:
    """Refuse to leave a context before a later one on the same layers."""
    if span not in around:
        return
    for later in around[around.index(span) + 1 :]:
        shared = next((plan for plan in span.keys or () if plan in (later.keys or ())), None)
        if later.end is None and shared is not None:
            raise InterleavedContexts(
                f"A context on {shared.label or 'a layer'} ends while a later one on the same layer is open, so calls "
                "in between saw the later one. Generators that take turns inside `hold`, `sampling` or `using` see "
                "each other's contexts. Give each generator a copy of the model: copy.deepcopy(model)."
            )
