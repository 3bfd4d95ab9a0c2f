"""A pass: what has to be remembered while a draw is in use, by one forward pass or by all calls inside `hold`."""

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
from .bits import on_cpu, recorded
from .draw import Draw

_Made = dict[tuple[torch.dtype, int], AtOnce]  # by dtype and base


class Pass:
    """The session of one draw: how many examples there are, and what was made for all layers at once."""

    __slots__ = (
        "before",
        "counted_by",
        "draw",
        "examples",
        "formed",
        "is_certain",
        "is_closed",
        "made",
        "process_group",
        "roster",
        "uses",
    )

    def __init__(self, draw: Draw, roster: Roster | None = None, process_group: Any = None) -> None:
        self.draw = draw
        self.roster = roster  # the Parameters that draw together
        self.process_group = process_group  # of the ranks that share a batch
        self.examples: int | None = None  # counted by the first layer that is called
        self.counted_by = ""
        self.is_certain = False  # a layer that depends on the count has confirmed it
        self.before = 0  # examples of the ranks before this one
        self.uses: set[Hashable] | None = None  # weights that were used, if the pass is one forward pass
        self.formed: dict[Hashable, Tensor] | None = None  # examples' weights, if calls share them
        self.made: _Made = {}
        self.is_closed = False  # the forward pass or the context has ended

    @property
    def offset(self) -> int:
        """The index of the first example of this rank."""
        return self.draw.first + self.before

    def to(self, device: torch.device) -> "Pass":
        """Return a pass whose draw is on a device, with the same count and the same formed weights."""
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
        folded.made, folded.is_closed = self.made, self.is_closed
        return self._same_count(folded)

    def _same_count(self, other: "Pass") -> "Pass":
        other.examples, other.counted_by, other.before = self.examples, self.counted_by, self.before
        other.is_certain, other.uses, other.formed = self.is_certain, self.uses, self.formed
        return other

    def count(self, rows: int, layer: str, *, is_certain: bool = True) -> int:
        """Return the number of examples in `rows` rows. The first layer that asks fixes it for the whole pass.

        Args:
            rows: The rows of an input.
            layer: What errors call the layer.
            is_certain: The layer depends on the count. One that does not, because all examples share a weight, neither
                refuses another count nor binds later layers.

        Raises:
            ExampleCount: The rows do not split into examples, or another layer saw another number.
        """
        draw = self.draw
        if not is_certain:
            if self.examples is not None:
                return self.examples
            rows = max(rows // draw.rows, 1) * draw.rows
        if is_certain and not self.is_certain and self.examples is not None:
            self.examples, self.made = None, {}
        if rows % draw.rows:
            raise ExampleCount(
                f"{layer}: an input of {rows} rows does not split into examples of rows={draw.rows} rows each. "
                f"Give this draw a multiple of {draw.rows} rows, or hold with another rows=…."
            )
        examples = rows // draw.rows
        before = self._examples_before(examples) if self.examples is None else self.before
        if draw.first + before + examples > 2**32:
            raise InvalidArgument(
                f"{layer}: first={draw.first} with {examples} examples; examples are numbered below 2³²."
            )
        if self.examples is None:
            self.examples, self.counted_by, self.before = examples, layer, before
            self.is_certain = is_certain
        elif self.examples != examples:
            raise ExampleCount(
                f"{layer}: the input has {examples} examples, but this draw has {self.examples} "
                f"(fixed by {self.counted_by}). One draw serves one batch, and every perturbed layer must see the "
                "same examples. If time, tokens or windows were folded into the batch dimension, keep them apart, "
                "as (N, T, F), or name the example's dimension with perturb(…, batch_dim=…), or with batch_first=… of "
                "a recurrent or attention layer; for the next part of a batch under the same draw use "
                "hold(model, seed=…, first=…)."
            )
        return examples

    def _examples_before(self, examples: int) -> int:
        """Return how many examples the ranks before this one have.

        A rank with a base of its own assumes that the others have as many examples as itself. If they do not, examples
        of two ranks may get one number, and so the same signs, but on independent bases: flipped by whatever signs,
        independent symmetric ΔŴ stay independent. On one base those examples would have the same weights.
        """
        draw, ranks = self.draw, 1
        if draw.share_base and dist.is_available() and dist.is_initialized():
            ranks = dist.get_world_size(self.process_group)
        if ranks == 1:
            return draw.rank * examples
        here = torch.full((1,), examples, dtype=torch.int64, device=draw.seed.device)
        counts = here.new_empty(ranks)
        dist.all_gather_into_tensor(counts, here, group=self.process_group)
        if recorded():  # nothing can be read there
            torch._assert_async(
                (counts == here).all(),
                "share_base=True in a captured or compiled step: the ranks must have equal shares of the batch.",
            )
            return draw.rank * examples
        return int(counts[: draw.rank].sum())

    def at_once(self, real: torch.dtype, group: int | None) -> AtOnce | None:
        """Return the small signs and noise of the whole model, made by the first call that asks.

        Args:
            real: The dtype of the numbers.
            group: The number of examples that the scheme lets share a base, None for all.

        Returns:
            None if nothing can be kept, or if the examples have several bases.
        """
        draw = self.draw
        if self.roster is None or not draw.fixed or asks_for_kernels():
            return None
        base, group = 0, draw.group or group
        if group:
            base = self.offset // group
            if self.examples and (self.offset + self.examples - 1) // group != base:
                return None
        made = _replayed.of(self) if self.is_closed else self.made
        found = made.get((real, base))
        if found is None:
            if self.examples is None or real not in (torch.float32, torch.float64) or not on_cpu(draw.seed):
                return None
            seed = int(draw.seed)
            sign_seed = seed if draw.sign_seed is None else int(draw.sign_seed)
            place = (draw.fold, base, self.offset, self.examples, real)
            if not torch.is_inference_mode_enabled():
                found = made[real, base] = self.roster.make(seed, sign_seed, *place)
            else:
                with torch.inference_mode(False):  # autograd may keep it
                    found = made[real, base] = self.roster.make(seed, sign_seed, *place)
        return found

    def close(self) -> None:
        """Let go of what was made. Checkpoints keep the pass, and make it again for their recomputation."""
        self.made, self.is_closed = {}, True
        if self.formed is not None:
            self.formed = {}
        if self.roster is not None and not self.roster.is_lasting:
            self.roster.forget()


class _Replayed(threading.local):
    """What recomputations of one closed pass make, for the pass that was recomputed last in this thread."""

    def __init__(self) -> None:
        self.session: Pass | None = None
        self.made: _Made = {}

    def of(self, session: Pass) -> _Made:
        if self.session is not session:
            self.session, self.made = session, {}
        return self.made


_replayed = _Replayed()
