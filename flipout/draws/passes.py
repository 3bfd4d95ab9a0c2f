"""A pass: the state kept while a draw is in use, by one forward pass or by all calls inside `hold`."""

import threading
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..backend import asks_for_kernels
from ..errors import ExampleCount, InvalidArgument
from .at_once import AtOnce, Roster
from .bits import is_recorded, uses_numpy
from .draw import Draw

_DrawnByBase = dict[tuple[torch.dtype, int, int], AtOnce]  # the key is dtype, first base and number of bases


class Pass:
    """The session of one draw: its number of examples, and the signs and noise drawn for all layers at once."""

    __slots__ = (
        "advice",
        "counted_by",
        "draw",
        "drawn",
        "examples",
        "examples_before",
        "formed",
        "formed_for",
        "is_certain",
        "is_closed",
        "process_group",
        "roster",
        "uses",
    )

    def __init__(self, draw: Draw, roster: Roster | None = None, process_group: Any = None) -> None:
        self.draw = draw
        self.roster = roster  # the Parameters that draw together
        self.process_group = process_group  # the ranks that share a batch
        self.examples: int | None = None  # set by the first layer that is called
        self.counted_by = ""
        self.advice = ""  # what to write if a layer sees another number; empty if unknown
        self.is_certain = False  # True once a layer that depends on the number has confirmed it
        self.examples_before = 0  # examples on lower ranks
        self.uses: set[Hashable] | None = None  # weights used so far, if this is one forward pass
        self.formed: dict[Hashable, Tensor] | None = None  # weights of each example, if calls share them
        self.formed_for: tuple[int, int] | None = (
            None  # (first, count) of the examples in `formed`, if other passes too
        )
        self.drawn: _DrawnByBase = {}
        self.is_closed = False  # True once the forward pass or the context has ended

    @property
    def offset(self) -> int:
        """The index of the first example of this rank."""
        return self.draw.first + self.examples_before

    def to(self, device: torch.device) -> "Pass":
        """Return a pass with its draw on that device, the same number of examples and the same formed weights."""
        draw = self.draw.to(device)
        if draw is self.draw:
            return self
        moved = Pass(draw, process_group=self.process_group)
        return self._same_count(moved)

    def folded(self, rows: int) -> "Pass":
        """Return the pass for a layer that has `rows` rows in place of each row of the model's batch."""
        if rows == 1:
            return self
        folded = Pass(replace(self.draw, rows=self.draw.rows * rows), self.roster, self.process_group)
        folded.drawn, folded.is_closed = self.drawn, self.is_closed
        return self._same_count(folded)

    def _same_count(self, other: "Pass") -> "Pass":
        other.examples, other.counted_by, other.examples_before = self.examples, self.counted_by, self.examples_before
        other.advice = self.advice
        other.is_certain, other.uses = self.is_certain, self.uses
        other.formed, other.formed_for = self.formed, self.formed_for
        return other

    def count(self, rows: int, layer: str, *, is_certain: bool = True, advice: str = "") -> int:
        """Return the number of examples in `rows` rows. The first layer that asks fixes the number for the whole pass.

        Args:
            rows: The rows of an input.
            layer: The name of the layer in errors.
            is_certain: Whether the layer depends on the number. A layer whose examples share one weight does not: it
                accepts any number, and later layers may set another one.
            advice: What to write if a later layer sees another number.

        Raises:
            ExampleCount: The rows do not split into examples, or an earlier layer saw a different number of examples.
            InvalidArgument: An example would have a number of 2³² or more.
        """
        draw = self.draw
        if not is_certain:
            if self.examples is not None:
                return self.examples
            rows = max(rows // draw.rows, 1) * draw.rows
        if is_certain and not self.is_certain and self.examples is not None:
            self.examples, self.drawn = None, {}
        if rows % draw.rows:
            raise ExampleCount(
                f"{layer}: an input of {rows} rows does not split into examples of rows={draw.rows} rows each. "
                f"Pass a multiple of {draw.rows} rows, or change rows=… of hold."
            )
        examples = rows // draw.rows
        before = self._count_examples_before(examples) if self.examples is None else self.examples_before
        if draw.first + before + examples > 2**32:
            raise InvalidArgument(
                f"{layer}: first={draw.first} with {examples} examples; example numbers must stay below 2³². "
                "Use a smaller first=…."
            )
        if self.examples is None:
            self.examples, self.counted_by, self.examples_before = examples, layer, before
            self.is_certain, self.advice = is_certain, advice
        elif self.examples != examples:
            raise self._disagrees(layer, examples)
        return examples

    def _disagrees(self, layer: str, examples: int) -> ExampleCount:
        """Return the error for a layer that sees another number of examples, with what is known to mend it."""
        assert self.examples is not None
        advice = {} if self.roster is None else self.roster.advice
        is_held = self.uses is None and not self.advice
        following = (
            f"For the next part of a batch under the same draw: hold(model, seed=…, first={self.draw.first}"
            f"{f' + {self.examples}' * bool(self.examples)}). For another batch: another hold."
        )
        if is_held and layer == self.counted_by:
            hints = [f"Inside a hold, one draw serves one batch. {following}"]
        else:
            of_layer = advice.get(layer) or advice.get(self.counted_by)
            hints = [of_layer, self.advice] if of_layer or self.advice else [self._usual_hint(layer, examples)]
            hints += [following] if is_held else []
        return ExampleCount(
            f"{layer}: the input has {examples} examples, but this draw has {self.examples} (fixed by "
            f"{self.counted_by}). {' '.join(filter(None, hints))}"
        )

    def _usual_hint(self, layer: str, examples: int) -> str:
        """Return what to write if only the two numbers are known."""
        assert self.examples is not None
        few, many = sorted((examples, self.examples))
        if few > 1 and many % few == 0:
            return (
                "If time, tokens or windows were folded into the rows, show perturb a batch, perturb(…, "
                "example_inputs=batch), or keep them apart, as (N, T, F). If the examples are not in dimension 0, say "
                "where: perturb(…, batch_dim=1)."
            )
        alone = (self.counted_by if self.examples == 1 else layer).partition(" ")[0]
        return (
            f"If all examples share the input of {alone}, as a prompt or a table of positions, share the weight too: "
            f"scheme={{'{alone}.*': 'shared', '*': 'flipout'}}. If the examples are not in dimension 0, say where: "
            "perturb(…, batch_dim=1), or show perturb a batch, perturb(…, example_inputs=batch)."
        )

    def _count_examples_before(self, examples: int) -> int:
        """Return the number of examples on lower ranks.

        If each rank has its own base, all ranks are assumed to have equally many examples. Otherwise examples of two
        ranks may get the same number and so the same signs. That is harmless, since their bases are independent, and
        independent symmetric ΔŴ stay independent whatever signs flip them. With a shared base such examples would see
        the same weights, so there the ranks exchange their counts.
        """
        draw, ranks = self.draw, 1
        if draw.share_base and dist.is_available() and dist.is_initialized():
            ranks = dist.get_world_size(self.process_group)
        if ranks == 1:
            return draw.rank * examples
        here = torch.full((1,), examples, dtype=torch.int64, device=draw.seed.device)
        counts = here.new_empty(ranks)
        dist.all_gather_into_tensor(counts, here, group=self.process_group)
        if is_recorded():  # tensors cannot be read here
            torch._assert_async(
                (counts == here).all(),
                "share_base=True in a captured or compiled step: the ranks must have equal shares of the batch.",
            )
            return draw.rank * examples
        return int(counts[: draw.rank].sum())

    def at_once(self, real: torch.dtype, group: int | None, is_grouped: bool = False) -> AtOnce | None:
        """Return the small signs and noise of the whole model, drawn by the first call that asks for them.

        Args:
            real: The dtype of the signs and the noise.
            group: Number of examples that share a base under the scheme; None for all.
            is_grouped: Whether the scheme reads the noise of several bases. If not, several bases give None.

        Returns:
            The signs and noise, or None if they cannot be kept or if the examples have several bases.
        """
        draw = self.draw
        if self.roster is None or not draw.fixed or asks_for_kernels():
            return None
        base, bases, group = 0, 1, draw.group or group
        if group:
            base = self.offset // group
            if self.examples:
                bases = (self.offset + self.examples - 1) // group - base + 1
            if bases > 1 and not is_grouped:
                return None
        drawn = _replayed.of(self) if self.is_closed else self.drawn
        found = drawn.get((real, base, bases))
        if found is None:
            if self.examples is None or real not in (torch.float32, torch.float64) or not uses_numpy(draw.seed):
                return None
            seed = int(draw.seed)
            sign_seed = seed if draw.sign_seed is None else int(draw.sign_seed)
            position = (draw.fold, base, self.offset, self.examples, real, bases)
            if not torch.is_inference_mode_enabled():
                found = drawn[real, base, bases] = self.roster.make(seed, sign_seed, *position)
            else:
                with torch.inference_mode(False):  # autograd may keep the tensors
                    found = drawn[real, base, bases] = self.roster.make(seed, sign_seed, *position)
        return found

    def close(self) -> None:
        """Release the signs and noise. Checkpoints keep the pass itself, and draw them again to recompute."""
        self.drawn, self.is_closed = {}, True
        if self.formed is not None:
            self.formed = {}
        if self.roster is not None and not self.roster.is_lasting:
            self.roster.forget()


class _Replayed(threading.local):
    """The signs and noise drawn again for the closed pass that was recomputed last in this thread."""

    def __init__(self) -> None:
        self.session: Pass | None = None
        self.drawn: _DrawnByBase = {}

    def of(self, session: Pass) -> _DrawnByBase:
        if self.session is not session:
            self.session, self.drawn = session, {}
        return self.drawn


_replayed = _Replayed()
