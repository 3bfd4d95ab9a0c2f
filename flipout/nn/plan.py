"""The noise of one layer: which Parameters, how, and under whose draw."""

import threading
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import torch

from ..distributions import Distribution
from ..errors import Unsupported
from ..schemes import Scheme
from .layouts import Layout, Reads
from .root import Root
from .spans import Span, is_recomputing, open_spans

Keys = dict[str, int]  # name of a Parameter → the key of its signs and noise


def parameter_key(name: str) -> int:
    """Return 61 bits that stand for a Parameter's name in every process."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") >> 3


@dataclass(eq=False)
class Plan:
    """The noise of one layer, and what the layer remembers between calls."""

    distributions: dict[str, Distribution]
    converted_scheme: Scheme  # `using` may put another scheme in its place
    roots: list[tuple[Root, Keys]]  # the modules around this layer that take its draws, with the keys there
    label: str = ""  # the layer's name in its latest root, for messages
    is_rooted: bool = False  # the roots are other modules; a layer made by hand is its own root
    learned: dict[str, tuple[str, ...]] = field(default_factory=dict)  # Parameter → suffixes of learned companions
    prior_suffixes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # Parameter → suffixes of its prior
    has_factors: bool = False  # a distribution has directions (`Distribution.factors`)
    is_checked: bool = False  # a root has checked the layer since a Parameter was replaced; compiled code guards this
    pending: dict[str, Any] = field(default_factory=dict)  # companion from the meta device → its tensor without numbers
    quiet_rows: dict[str, int] = field(default_factory=dict)  # Parameter → the row that is never perturbed
    batch_dim: int | None = None  # the example's dimension that the user asked for
    is_told: bool = False  # the user asked for it by the layer's name, so its rows are believed
    inherited_batch_dim: int = 0  # the example's dimension in the modules around, if the user did not ask
    takes_sequences: bool = False  # inputs are (N, time, features) in either order, or (time, features) of one example
    layout: Layout | None = None  # where the input has its examples, learned from `example_inputs`
    unknown: str = ""  # why the layout could not be learned, if dimension 0 cannot be assumed
    reads: Reads = field(default_factory=dict)  # layouts of reads outside of the layer, learned from `example_inputs`
    remembered: Any = None  # how the layer computed an input of the usual shape
    formed: Any = None  # the weights of a sample that `predict` has formed, for this layer and others
    own_roster: Any = None  # the roster of this layer alone, for calls outside every root
    open_contexts: list[Span] = field(default_factory=list)  # contexts that hold this layer, in any thread

    @property
    def scheme(self) -> Scheme:
        """The scheme of a call. A recomputation has the scheme of its forward pass."""
        if not open_spans() and not is_recomputing():
            return self.converted_scheme
        return next((span.scheme for span in self._contexts() if span.scheme is not None), self.converted_scheme)

    @property
    def held(self) -> Span | None:
        """The `hold` around a call. A recomputation has the one around its forward pass."""
        return next((span for span in self._contexts() if span.session is not None), None)

    @property
    def sampled(self) -> bool:
        """True if a `hold` or a `sampling` asks for noise, now or in the forward pass that is recomputed."""
        return any(span.scheme is None or span.session is not None for span in self._contexts())

    def _contexts(self) -> list[Span]:
        """Return the contexts around a call, or around the forward pass that it recomputes, innermost first."""
        around = [span for span in reversed(open_spans()) if self in (span.keys or ()) and span.end is None]
        if not is_recomputing():
            if not around and self.open_contexts:  # in this order: compiled code guards on what it reads
                self._refuse_other_threads()
            return around
        before = [span for root, _ in self.roots for span in root.history.recomputed_spans()]
        return [span for span in around if span.in_backward] + [span for span in before if self in (span.keys or ())]

    def _refuse_other_threads(self) -> None:
        """Refuse a call outside every context while another thread is in one: that thread may have started this one."""
        here = None if torch.compiler.is_compiling() else threading.get_ident()
        if any(span.thread != here for span in self.open_contexts):
            raise Unsupported(
                f"{self.label or 'A layer'}: called in a thread without a context while another thread is inside "
                "`hold`, `sampling`, `using` or `predict`. Threads do not inherit a context. If this thread works for "
                "the other one, run its work with contextvars.copy_context().run(function). If not, enter a context "
                "here too, or give this thread a copy of the model: copy.deepcopy(model)."
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, which starts outside every context."""
        pending = dict.fromkeys(self.pending)  # the tensors of the copy are others
        return {
            **self.__dict__,
            "open_contexts": [],
            "remembered": None,
            "formed": None,
            "own_roster": None,
            "pending": pending,
        }
