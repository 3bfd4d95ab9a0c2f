"""The noise of one layer: which Parameters, how, and under whose draw."""

import threading
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import torch

from ..distributions import Distribution
from ..errors import Unsupported
from ..schemes import Scheme
from .layouts import Layout
from .root import Root
from .spans import Span, open_spans, recomputing

Keys = dict[str, int]  # Parameter → what its signs are keyed by


def parameter_key(name: str) -> int:
    """61 bits that stand for a Parameter's name, the same in every process."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") >> 3


@dataclass(eq=False)
class Plan:
    distributions: dict[str, Distribution]
    converted_scheme: Scheme  # the one it was converted with; `using` may put another in its place
    roots: list[tuple[Root, Keys]]  # the modules around this layer that take draws for it; keys are of their names
    label: str = ""  # the layer's name in the last root, for messages
    rooted: bool = False  # the roots are other modules; a layer made by hand has only itself
    learned: dict[str, tuple[str, ...]] = field(default_factory=dict)  # Parameter → suffixes of the learned ones beside
    kept: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the same, of the numbers of its prior
    seen: bool = False  # a root has looked at the layer since a Parameter was put in; compiled code guards it
    pending: dict[str, int] = field(default_factory=dict)  # what came from meta → its version while it has no numbers
    quiet_rows: dict[str, int] = field(default_factory=dict)  # Parameter → the row that is never perturbed
    batch_dim: int | None = None  # the example's dimension, as it was asked for
    follows: int = 0  # the same, as the modules around have it, where nobody asked
    sequences: bool = False  # the inputs are (N, time, features) in either order, or (time, features) of one example
    layout: Layout | None = None  # where the input has its examples, as a batch has shown
    quick: Any = None  # the usual call, remembered
    alone: Any = None  # the roster of this layer, for calls outside of every root
    opened: list[Span] = field(default_factory=list)  # the contexts that are open on this layer in any thread

    @property
    def scheme(self) -> Scheme:
        """The scheme that a call is under; in a recomputation, the one that its forward was under."""
        if not open_spans() and not recomputing():
            return self.converted_scheme
        return next((span.scheme for span in self._open() if span.scheme is not None), self.converted_scheme)

    @property
    def held(self) -> Span | None:
        """The `hold` that a call is under; in a recomputation, the one that its forward was under."""
        return next((span for span in self._open() if span.session is not None), None)

    @property
    def sampled(self) -> bool:
        """Whether a `hold` or a `sampling` asks for noise, now or in the forward that is recomputed."""
        return any(span.scheme is None or span.session is not None for span in self._open())

    def _open(self) -> list[Span]:
        """The innermost first."""
        around = [span for span in reversed(open_spans()) if self in (span.keys or ()) and span.end is None]
        if not recomputing():
            if not around and self.opened:  # in this order: compiled code guards on what it reads
                self._refuse_other_threads()
            return around
        before = [span for root, _ in self.roots for span in root.earlier()]
        return [span for span in around if span.in_backward] + [span for span in before if self in (span.keys or ())]

    def _refuse_other_threads(self) -> None:
        """Refuse a call outside of every context while another thread is in one: it may have been started there."""
        here = None if torch.compiler.is_compiling() else threading.get_ident()
        if any(span.thread != here for span in self.opened):
            raise Unsupported(
                f"{self.label or 'A layer'}: called in a thread without a context while another thread is inside "
                "`hold`, `sampling`, `using` or `predict`, which threads do not inherit. If this thread works for that "
                "one, run its work with contextvars.copy_context().run(function). If not, give it a copy of the model, "
                "copy.deepcopy(model), or enter a context here too."
            )

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles start outside of every context."""
        return {**self.__dict__, "opened": [], "quick": None, "alone": None}
