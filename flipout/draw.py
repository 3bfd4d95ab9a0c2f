"""A draw: which sample of the weights a forward pass sees."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .errors import ExampleCount, InvalidArgument
from .random import transformed, wrap
from .whole import whole


@dataclass(eq=False)
class Draw:
    """Seeds, the index of the first example, rows per example, examples per base; and who counted the examples.

    `fixed` says that nobody writes to the seeds, so that they can be kept as they are.

    `rank` sets data-parallel ranks apart: their examples follow each other, and their bases are folded with it
    unless `share_base`.
    """

    seed: Tensor
    sign_seed: Tensor | None = None  # where the signs have a seed of their own
    first: int = 0
    rows: int = 1
    group: int | None = None
    antithetic: bool = False
    rank: int = 0
    share_base: bool = False
    fixed: bool = False
    examples: int | None = field(default=None, init=False)
    counted_by: str = field(default="", init=False)
    uses: set[Hashable] | None = field(default=None, init=False)  # of weights, where a draw is for one forward pass
    formed: dict[Hashable, Tensor] | None = field(default=None, init=False)  # examples' weights, where calls share them

    def __post_init__(self) -> None:
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
        if self.first + (self.rank + 1) * examples > 2**32:
            raise InvalidArgument(
                f"{layer}: first={self.first} with {examples} examples; examples are numbered below 2³²."
            )
        if self.examples is None:
            self.examples, self.counted_by = examples, layer
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
        return self.first + self.rank * (self.examples or 0)

    @property
    def fold(self) -> int:
        return 0 if self.share_base else self.rank

    def to(self, device: torch.device) -> "Draw":
        if self.seed.device == device and (self.sign_seed is None or self.sign_seed.device == device):
            return self
        signs = None if self.sign_seed is None else self.sign_seed.to(device)
        moved = replace(self, seed=self.seed.to(device), sign_seed=signs)
        moved.examples, moved.counted_by = self.examples, self.counted_by
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
        return seed
    number = whole("seed", seed, more=", or a 0-dim int64 tensor.")
    with torch.inference_mode(False):  # autograd keeps it
        return torch.full((), wrap(number), dtype=torch.int64, device=device)


def fresh_seed(device: torch.device) -> Tensor:
    """One number read from torch's global generator of that device."""
    return torch.randint(2**63 - 1, (), dtype=torch.int64, device=device)


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
