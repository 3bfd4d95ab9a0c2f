"""A draw: which sample of the weights a forward pass sees."""

import threading
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .backend import asks_for_kernels
from .draws.at_once import FILLED, AtOnce, Roster
from .draws.bits import on_cpu, recorded, transformed, undifferentiated, wrap
from .errors import ExampleCount, InvalidArgument
from .whole import whole


class _Again(threading.local):
    """What a recomputation made at once, for the draw that was recomputed last in this thread."""

    def __init__(self) -> None:
        self.draw: Draw | None = None
        self.made: dict[tuple[torch.dtype, int, int], AtOnce] = {}

    def of(self, draw: "Draw") -> dict[tuple[torch.dtype, int, int], AtOnce]:
        if self.draw is not draw:
            self.draw, self.made = draw, {}
        return self.made


_again = _Again()


@dataclass(eq=False)
class Draw:
    """Seeds, the index of the first example, rows per example, examples per base; and who counted the examples.

    `fixed` says that nobody writes to the seeds, so that they can be kept as they are.

    `rank` sets data-parallel ranks apart: their examples follow each other, and their bases are folded with it
    unless `share_base`. Then the ranks of `process_group` tell each other how many examples they have.
    """

    seed: Tensor
    sign_seed: Tensor | None = None  # where the signs have a seed of their own
    first: int = 0
    rows: int = 1
    group: int | None = None
    antithetic: bool = False
    rank: int = 0
    share_base: bool = False
    process_group: Any = None
    fixed: bool = False
    examples: int | None = field(default=None, init=False)
    counted_by: str = field(default="", init=False)
    before: int = field(default=0, init=False)  # examples of the ranks before this one
    uses: set[Hashable] | None = field(default=None, init=False)  # of weights, where a draw is for one forward pass
    formed: dict[Hashable, Tensor] | None = field(default=None, init=False)  # examples' weights, where calls share them
    roster: Roster | None = field(default=None, init=False)  # the Parameters that draw together
    made: dict[tuple[torch.dtype, int, int], AtOnce] = field(default_factory=dict, init=False)
    is_closed: bool = field(default=False, init=False)  # its forward pass or context has ended

    def at_once(self, real: torch.dtype, group: int | None, serves_bases: bool = False) -> AtOnce | None:
        """What is small of the whole draw, made by the first call that asks; None where that cannot be kept.

        Several bases are made at once if nothing is differentiated and each has rows enough for a product of its own.

        Args:
            real: The dtype of the numbers.
            group: The number of examples that the scheme lets share a base, None for all.
            serves_bases: Whether the scheme can use the noise of several bases.
        """
        if self.roster is None or not self.fixed or asks_for_kernels():
            return None
        base, bases, group = 0, 1, self.group or group
        if group:
            base = self.offset // group
            if self.examples and (self.offset + self.examples - 1) // group != base:
                bases = (self.offset + self.examples - 1) // group - base + 1
                is_filled = group * self.rows >= FILLED and self.offset % group == 0
                if not (serves_bases and is_filled and self.roster.fits(bases)):
                    return None
                if torch.is_grad_enabled() or transformed():
                    return None
        made = _again.of(self) if self.is_closed else self.made
        found = made.get((real, base, bases))
        if found is None:
            if self.examples is None or real not in (torch.float32, torch.float64) or not on_cpu(self.seed):
                return None
            seed = int(self.seed)
            signs = seed if self.sign_seed is None else int(self.sign_seed)
            about = (self.fold, base, self.offset, self.examples, real, bases)
            if not torch.is_inference_mode_enabled():
                found = made[real, base, bases] = self.roster.make(seed, signs, *about)
            else:
                with torch.inference_mode(False):  # autograd may keep it
                    found = made[real, base, bases] = self.roster.make(seed, signs, *about)
        return found

    def close(self) -> None:
        """Let go of what was made. Checkpoints remember the draw, and make it again for their recomputation."""
        self.made, self.is_closed = {}, True
        if self.formed is not None:
            self.formed = {}
        if self.roster is not None and not self.roster.is_lasting:
            self.roster.forget()

    def __post_init__(self) -> None:
        is_whole = type(self.first) is int and type(self.rows) is int
        if is_whole and self.first >= 0 and self.rows > 0 and self.group is None:
            return  # every forward pass makes a draw like this: check no further
        for name, least in (("first", 0), ("rows", 1), ("group", 1)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):  # a draw per forward pass: no call
                setattr(self, name, whole(name, value, least))

    def count(self, rows: int, layer: str) -> int:
        """The number of examples in `rows` rows; the first layer that asks fixes it for the whole draw."""
        if rows % self.rows:
            raise ExampleCount(
                f"{layer}: an input of {rows} rows does not split into examples of rows={self.rows} rows each. "
                f"Give this draw a multiple of {self.rows} rows, or hold with another rows=…."
            )
        examples = rows // self.rows
        before = self._examples_before(examples) if self.examples is None else self.before
        if self.first + before + examples > 2**32:
            raise InvalidArgument(
                f"{layer}: first={self.first} with {examples} examples; examples are numbered below 2³²."
            )
        if self.examples is None:
            self.examples, self.counted_by, self.before = examples, layer, before
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

    def seed_of_signs(self, reuse: bool) -> Tensor:
        """As it is now: it may live in a tensor that is written to before the signs are made again, in backward."""
        if reuse and self.sign_seed is None:
            return torch.zeros_like(self.seed)
        seed = self.seed if self.sign_seed is None else self.sign_seed
        return seed if self.lasting else seed.clone()

    @property
    def lasting(self) -> bool:
        """Whether autograd may keep the seeds as they are: nobody writes to them, and none is of inference mode."""
        return self.fixed and (transformed() or torch.is_inference_mode_enabled() or not self.seed.is_inference())

    @property
    def offset(self) -> int:
        """The index of the first example here."""
        return self.first + self.before

    def _examples_before(self, examples: int) -> int:
        """How many examples the ranks before this one have.

        With a base of its own, a rank takes the others to have as many as itself. Where they do not, examples of two
        ranks may have one number, and so the same signs, but on different bases: flipped by whatever signs, two
        symmetric ΔŴ that are independent stay so. On one base they would have the same weights.
        """
        if not (self.share_base and self.rank_count > 1):
            return self.rank * examples
        own = torch.full((1,), examples, dtype=torch.int64, device=self.seed.device)
        counts = own.new_empty(self.rank_count)
        dist.all_gather_into_tensor(counts, own, group=self.process_group)
        if recorded():  # nothing can be read there
            torch._assert_async(
                (counts == own).all(),
                "share_base=True in a captured or compiled step: the ranks must have equal shares of the batch.",
            )
            return self.rank * examples
        return int(counts[: self.rank].sum())

    @property
    def rank_count(self) -> int:
        """How many ranks there are in its process group."""
        return dist.get_world_size(self.process_group) if dist.is_available() and dist.is_initialized() else 1

    @property
    def fold(self) -> int:
        return 0 if self.share_base else self.rank

    def to(self, device: torch.device) -> "Draw":
        if self.seed.device == device and (self.sign_seed is None or self.sign_seed.device == device):
            return self
        signs = None if self.sign_seed is None else self.sign_seed.to(device)
        moved = replace(self, seed=self.seed.to(device), sign_seed=signs)
        moved.examples, moved.counted_by, moved.before = self.examples, self.counted_by, self.before
        moved.uses, moved.formed = self.uses, self.formed
        return moved


def from_seed(seed: int | Tensor, sign_seed: int | Tensor | None = None, device: torch.device | None = None, **fields):
    """A draw that anyone with the seed can replay."""
    signs = None if sign_seed is None else _seed_tensor(sign_seed, device)
    fixed = not isinstance(seed, Tensor) and not isinstance(sign_seed, Tensor)
    return Draw(_seed_tensor(seed, device), signs, fixed=fixed, **fields)


def _seed_tensor(seed: int | Tensor, device: torch.device | None) -> Tensor:
    if isinstance(seed, Tensor):
        if seed.dim() or seed.dtype != torch.int64:
            raise InvalidArgument(
                f"seed: expected an int or a 0-dim int64 tensor, got {seed.dtype} {tuple(seed.shape)}."
            )
        return undifferentiated(seed)
    number = whole("seed", seed, more=", or a 0-dim int64 tensor.")
    with torch.inference_mode(False):  # autograd keeps it
        return undifferentiated(torch.full((), wrap(number), dtype=torch.int64, device=_with_numbers(device)))


def fresh_seed(device: torch.device) -> Tensor:
    """One number read from torch's global generator of that device."""
    seed = torch.randint(2**63 - 1, (), dtype=torch.int64, device=_with_numbers(device))
    return undifferentiated(seed)


def _with_numbers(device: torch.device | None) -> torch.device | None:
    """A seed is never on the meta device: weights that are offloaded to it come back within the same draw."""
    return torch.device("cpu") if device is not None and device.type == "meta" else device


def runs(first: int, count: int, most: int, group: int) -> Iterator[tuple[int, int]]:
    """(first, count) of examples after each other, at most `most` in each; none ends within a group if it has room for
    the end of one before that. `group` 0 is all of them."""
    stop = first + count
    while first < stop:
        end = first + max(most, 1)
        within = end // group * group if group else first
        end = min(within if within > first else end, stop)
        yield first, end - first
        first = end
