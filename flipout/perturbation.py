"""One Parameter under one draw: its mean, its ΔŴ and its signs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from .distributions.base import Distribution, Scaled, sample
from .draw import Draw
from .draws.bits import transformed
from .draws.noise import NOISE, OUTPUT_NOISE, Origin, Stream, stream_starts
from .draws.signs import sign_at, signs
from .errors import AsymmetricDistribution
from .shards import Shard


class Part(NamedTuple):
    """Rows `start` onward of a Parameter that packs several matrices."""

    start: int
    length: int
    whole: int


@dataclass(frozen=True)
class Signs:
    """Whose signs: the Parameter and the examples. The `seed` is handed in, since it may live in a vmap."""

    key: int
    first: int
    count: int
    antithetic: bool
    part: "Part | None" = None

    def over(self, dims: Sequence[tuple[int, int]], seed: Tensor, dtype: torch.dtype) -> list[Tensor]:
        """(count, features) of ±1 for each (dimension, features)."""
        return next(self.runs(dims, seed, dtype, self.count))

    def runs(
        self, dims: Sequence[tuple[int, int]], seed: Tensor, dtype: torch.dtype, some: int, masks: bool = False
    ) -> Iterator[list[Tensor]]:
        """`over`, for `some` examples after the other: made at once, but unpacked only as they are asked for."""
        part = self.part
        over = [(dim, part.whole if part and dim == 0 else features) for dim, features in dims]
        for made in signs(seed, self.key, over, self.first, self.count, dtype, masks, some):
            for j, (dim, features) in enumerate(dims):
                if part and dim == 0:
                    made[j] = made[j].narrow(1, part.start, features)
                if self.antithetic and dim == 0:
                    made[j] = made[j] ^ torch.iinfo(made[j].dtype).min if masks else -made[j]
            yield made

    def at(self, dim: int, example: Tensor, feature: Tensor, seed: Tensor, dtype: torch.dtype) -> Tensor:
        """Single signs; examples are counted from the first one here."""
        made = sign_at(seed, self.key, dim, example + self.first, feature, dtype)
        return -made if self.antithetic and dim == 0 else made


@dataclass(eq=False, slots=True)
class Perturbation:
    """Products are computed in `dtype`; noise is made in the Parameter's own dtype and cast."""

    parameter: Tensor
    given: Tensor | None  # the spread
    distribution: Distribution
    draw: Draw
    key: int
    first: int
    examples: int
    dtype: torch.dtype
    part: Part | None = None
    source: Tensor | None = None  # in place of the spread, its softplus
    noise: Tensor | None = None  # that of `base`, or of several from there on, where it was made at once for the draw
    base: int = 0

    @property
    def spread(self) -> Tensor:
        if self.given is not None:
            return self.given
        assert self.source is not None
        return F.softplus(self.source)

    @property
    def mean(self) -> Tensor:
        mean = self.parameter if self.part is None else self._rows_of(self.parameter, 0)
        return mean if mean.dtype == self.dtype else mean.to(self.dtype)

    @property
    def spread_of_mean(self) -> Tensor:
        """The spread, of the mean's shape."""
        return self._rows_of(self.spread.expand_as(self.parameter), 0)

    @property
    def signs(self) -> Signs:
        return Signs(self.key, self.first, self.examples, self.draw.antithetic, self.part)

    def seed_of_signs(self, reuse: bool) -> Tensor:
        return self.draw.seed_of_signs(reuse)

    def deltas(self, first: int, count: int) -> Tensor:
        """(count, *shape): ΔŴ of the bases `first` onward."""
        made = self._made_at_once(first, count)
        return self._sample(self._starts(NOISE, first, count)) if made is None else made

    def shard_of_deltas(self, shard: Shard, count: int) -> Tensor:
        """`deltas` of the first bases: the numbers that this rank holds, as the spread does. All ranks see one draw."""
        start = shard.agreed(self._starts(NOISE, 0, count)).view(-1, *[1] * len(shard.shape))
        stream = Stream(start, shard.whole, self.spread.dtype, shard.elements(start.device))
        return (self.spread * self.distribution.noise(stream)).to(self.dtype)

    def delta(self, base: int = 0) -> Tensor:
        """ΔŴ of one base."""
        made = self._made_at_once(base)
        return self._sample(*self._start(base)) if made is None else made

    def made_of(self, base: int) -> tuple[Tensor, Tensor, Scaled] | None:
        """What ΔŴ of one base is made of, for whoever has it made by a kernel on the way: the spread or its source, and
        where the noise starts. None where no kernel does that, or the spread itself has a gradient."""
        if self.part is not None or transformed():
            return None
        given, scaled = self._scaled(None)
        learned = given.requires_grad and not scaled.softplus
        if learned or scaled.kernel(self.draw.seed, given, softplus=scaled.softplus) is None:
            return None
        start, origin = self._start(base)
        return given, start, scaled._replace(origin=origin)

    def starts(self, first: int, count: int) -> Tensor | None:
        """(count,): where the streams of ΔŴ of the bases `first` onward start, if ΔŴ is N(0, 1) times one number."""
        plain = self.distribution.gaussian and self.given is not None and self.given.dim() == 0 and self.part is None
        return self._starts(NOISE, first, count) if plain else None

    def delta_rows(self, row: Tensor, base: Tensor, first: int, count: int) -> Tensor:
        """(*row.shape, width): single rows of a 2-D ΔŴ, each of its own base among the `count` bases `first` onward."""
        height, width = self.parameter.shape
        if count == 1 and row.numel() >= height:
            return F.embedding(row, self.delta(first))
        start = self._starts(NOISE, first, count)[base - first].unsqueeze(-1)
        element = row.unsqueeze(-1) * width + torch.arange(width, device=row.device)
        noise = self.distribution.noise(Stream(start, (height, width), self.spread.dtype, element))
        return (self.spread_rows(row) * noise).to(self.dtype)

    def spread_rows(self, row: Tensor) -> Tensor:
        """Rows of the spread, broadcastable to (*row.shape, width)."""
        return self.spread if self.spread.dim() == 0 else F.embedding(row, self.spread.expand_as(self.parameter))

    def factors(self, rank: int, first: int, count: int) -> tuple[Tensor, Tensor]:
        """(count, d0, rank) and (count, rank, …) of the examples `first` onward, for a spread that rows have in common:
        every number of their product has that as its standard deviation."""
        start, (d0, *others) = self._starts(NOISE, first, count), self.parameter.shape
        left = Stream(start, (d0, rank), self.spread.dtype).normal() * (self.spread / math.sqrt(rank))
        right = Stream(start, (rank, *others), self.spread.dtype).normal(1)
        return self.oriented(self._rows_of(left, 1)).to(self.dtype), right.to(self.dtype)

    def left_rows(self, rank: int, row: Tensor, example: Tensor) -> Tensor:
        """(*row.shape, rank): single rows of the left factors, each of its own example among those here."""
        start = self._starts(NOISE, self.first, self.examples)[example].unsqueeze(-1)
        element = row.unsqueeze(-1) * rank + torch.arange(rank, device=row.device)
        left = Stream(start, (self.parameter.shape[0], rank), self.spread.dtype, element).normal()
        spread = self.spread if self.spread.dim() == 0 else self.spread[row]
        return self.oriented(left * (spread / math.sqrt(rank))).to(self.dtype)

    def oriented(self, delta: Tensor) -> Tensor:
        """ΔŴ, negated in an antithetic draw: for schemes without signs."""
        if self.draw.antithetic and not self.distribution.symmetric:
            raise AsymmetricDistribution(
                f"An antithetic draw of {self.distribution}: negating it would give weights that it never takes. "
                "Use a distribution that is symmetric about 0, or hold without antithetic=True."
            )
        return -delta if self.draw.antithetic else delta

    def output_noise(self, shape: tuple[int, ...]) -> Tensor:
        """(examples, *shape) of N(0, 1), for the local reparameterisation."""
        start = self._starts(OUTPUT_NOISE, self.first, self.examples)
        return self.oriented(Stream(start, shape, self.dtype).normal(self.part.start if self.part else 0))

    def seen_by(self, first: int, examples: int) -> Self:
        return replace(self, first=first, examples=examples)

    def _made_at_once(self, base: int, count: int | None = None) -> Tensor | None:
        """ΔŴ of one base, or of `count` bases from it on, if their noise was made at once."""
        if self.noise is None or self.given is None or base != self.base:
            return None
        if count != (None if self.noise.dim() == self.parameter.dim() else len(self.noise)):
            return None
        return self._rows_of(self.given * self.noise, 0 if count is None else 1)

    def _sample(self, start: Tensor, origin: Origin | None = None) -> Tensor:
        given, scaled = self._scaled(origin)
        return self._rows_of(sample(scaled, given, start, self.dtype), start.dim())

    def _scaled(self, origin: Origin | None) -> tuple[Tensor, Scaled]:
        given, softplus = (self.spread, False) if self.source is None else (self.source, True)
        return given, Scaled(self.distribution, self.parameter.shape, given.dtype, origin, softplus)

    def _start(self, base: int) -> tuple[Tensor, Origin | None]:
        """Where the stream of ΔŴ of one base starts; or the seed, and how that is made of it."""
        if self.draw.lasting:
            return self.draw.seed, Origin(self.key, NOISE, base, self.draw.fold)
        return self._starts(NOISE, base, 1).squeeze(0), None

    def _starts(self, field: int, first: int, count: int) -> Tensor:
        return stream_starts(self.draw.seed, self.key, field, first, count, self.draw.fold)

    def _rows_of(self, tensor: Tensor, dim: int) -> Tensor:
        return tensor.narrow(dim, self.part.start, self.part.length) if self.part else tensor
