"""The forward passes and contexts that a root remembers, for checkpoints that recompute a part of one."""

import sys
import threading
from collections import deque
from dataclasses import dataclass, field

import torch

from .._torch_internals import backward_node_numbers
from ..draws.draw import Draw
from ..errors import AmbiguousReplay
from .spans import Span

_CAPACITY = 1024  # spans and draws


def ambiguous(reason: str) -> AmbiguousReplay:
    """Return the refusal of a recomputation whose draw cannot be found."""
    return AmbiguousReplay(
        f"A checkpoint recomputes a perturbed layer in backward, but {reason}, so the draw of its forward pass cannot "
        "be known. Run backward sooner, or use flipout.checkpoint(function, *args), which carries the draw."
    )


@dataclass(eq=False)
class PassHistory:
    """The spans of one root, and the draws that were taken where autograd did not watch."""

    spans: list[Span] = field(default_factory=list)
    unwatched: deque[Draw] = field(default_factory=lambda: deque(maxlen=_CAPACITY))
    was_compiled: bool = False  # a pass was traced by torch.compile, which leaves no span
    forgotten: int = 0  # nodes below this number may belong to spans that were dropped

    def remember(self, span: Span) -> None:
        """Keep a span, and drop the oldest closed one if there are too many."""
        self.spans.append(span)
        if len(self.spans) <= _CAPACITY:
            return
        oldest = next((old for old in self.spans if old.end is not None), None)
        if oldest is not None:
            assert oldest.end is not None
            self.spans.remove(oldest)
            if not oldest.in_backward:
                self.forgotten = max(self.forgotten, oldest.end)

    def has_draw(self, draw: Draw) -> bool:
        """Return True if a remembered forward pass took this draw."""
        taken = [*self.unwatched, *(span.session.draw for span in self.spans if span.session is not None)]
        return torch.compiler.is_compiling() or any(torch.equal(earlier.seed, draw.seed) for earlier in taken)

    def recomputed_spans(self) -> list[Span]:
        """Return what was open in the forward pass that is being recomputed, innermost first.

        Raises:
            AmbiguousReplay: The forward pass cannot be identified.
        """
        if torch.compiler.is_compiling():
            raise ambiguous("the layer is compiled apart from its root")
        *rebuilt, node = backward_node_numbers() or [sys.maxsize]
        if node < self.forgotten:
            raise ambiguous(f"more than {_CAPACITY} forward passes have run since")
        in_forward = [span for span in reversed(self.spans) if not span.in_backward and span.covers(node)]
        if len({span.thread for span in in_forward}) > 1:
            raise ambiguous("forward passes ran in several threads")
        # The thread of the backward pass numbers the nodes that a recomputation creates. On a GPU, that is another
        # thread than that of the forward pass.
        thread = threading.get_ident()
        in_backward = [span for span in reversed(self.spans) if span.in_backward and span.thread == thread]
        return [span for number in rebuilt for span in in_backward if span.covers(number)] + in_forward
