"""The noise of one layer: which Parameters, how, and under whose draw."""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ..distributions import Distribution
from ..errors import Unsupported
from ..schemes import Scheme
from .root import Root, Span, recomputing

Keys = dict[str, int]  # Parameter → what its signs are keyed by


def parameter_key(name: str) -> int:
    """61 bits that stand for a Parameter's name, the same in every process."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") >> 3


@dataclass(eq=False)
class Plan:
    distributions: dict[str, Distribution]
    scheme: Scheme
    roots: list[tuple[Root, Keys]]  # the modules around this layer that take draws for it; keys are of their names
    label: str = ""  # the layer's name in the last root, for messages
    rooted: bool = False  # the roots are other modules; a layer made by hand has only itself
    learned: dict[str, tuple[str, ...]] = field(default_factory=dict)  # Parameter → suffixes of the learned ones beside
    kept: dict[str, tuple[str, ...]] = field(default_factory=dict)  # the same, of the numbers of its prior
    quiet_rows: dict[str, int] = field(default_factory=dict)  # Parameter → the row that is never perturbed
    batch_dim: int | None = None  # the example's dimension, as it was asked for
    follows: int = 0  # the same, as the modules around have it, where nobody asked
    sequences: bool = False  # the inputs are (N, time, features) in either order, or (time, features) of one example
    contexts: list[Span] = field(default_factory=list)  # every `hold` and `sampling` that is open
    schemes: list[Scheme] = field(default_factory=list)  # those that `using` has put aside

    @property
    def held(self) -> Span | None:
        """The `hold` that a call is under; in a recomputation, the one that its forward was under."""
        return next((span for span in self._open() if span.draw is not None), None)

    @property
    def sampled(self) -> bool:
        """Whether a `hold` or a `sampling` asks for noise, now or in the forward that is recomputed."""
        return len(self._open()) > 0

    def _open(self) -> list[Span]:
        """The innermost first."""
        if len(self.contexts) > 1 and len({span.thread for span in self.contexts}) > 1:
            raise Unsupported(
                f"{self.label or 'A layer'}: several threads hold or sample one model at once, and would see each "
                "other's draws. Give each thread a copy of the model: copy.deepcopy(model)."
            )
        if not recomputing():
            return self.contexts[::-1]
        opened = [span for span in reversed(self.contexts) if span.in_backward]
        before = [span for root, _ in self.roots for span in root.earlier()]
        return opened + [span for span in before if span.keys is not None and self in span.keys]

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles start outside of every context."""
        scheme = self.schemes[0] if self.schemes else self.scheme
        return {**self.__dict__, "scheme": scheme, "contexts": [], "schemes": []}
