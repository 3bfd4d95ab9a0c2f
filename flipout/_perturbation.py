"""One Parameter under one draw: its mean, its ΔŴ and its signs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from ._shards import Shard
from .distributions.base import Distribution
from .distributions.scaled import ScaledNoise, sample
from .draws.at_once import AtOnce
from .draws.bits import is_transformed
from .draws.draw import Draw
from .draws.noise import COEFFICIENTS, NOISE, OUTPUT_NOISE, Origin, Stream, stream_starts
from .draws.signs import fused_signs, sign_at, sign_batches
from .errors import AsymmetricDistribution


class Part(NamedTuple):
    """A range of rows of a Parameter that packs several matrices."""

    start: int
    length: int
    parameter_rows: int  # rows of the whole Parameter


@dataclass(frozen=True)
class Signs:
    """Identifies signs by Parameter and examples. The seed is passed to each method, since a vmap may batch it."""

    key: int
    first: int
    count: int
    antithetic: bool
    part: Part | None = None
    drawn: AtOnce | None = field(default=None, compare=False)  # may hold these signs; the seed is then its own

    def over(self, dims: Sequence[tuple[int, int]], seed: Tensor, dtype: torch.dtype) -> list[Tensor]:
        """Return ±1 of shape (count, features) for each pair (dimension, features)."""
        ready = None if self.drawn is None else [self._ready(dim, features, dtype) for dim, features in dims]
        if ready is None or any(found is None for found in ready):
            return next(self.runs(dims, seed, dtype, self.count))
        return ready  # pyright: ignore[reportReturnType]

    def _ready(self, dim: int, features: int, dtype: torch.dtype) -> Tensor | None:
        """Return the signs over one dimension if they were drawn at once for the whole model."""
        assert self.drawn is not None
        found, start = self.drawn.signs.get((self.key, dim)), self.first - self.drawn.first
        part = self.part if dim == 0 else None
        if found is None or found.dtype != dtype or found.shape[1] != (part.parameter_rows if part else features):
            return None
        if start < 0 or start + self.count > found.shape[0]:
            return None
        found = found.narrow(0, start, self.count)
        if part:
            found = found.narrow(1, part.start, features)
        return -found if self.antithetic and dim == 0 else found

    def runs(
        self, dims: Sequence[tuple[int, int]], seed: Tensor, dtype: torch.dtype, batch_rows: int, masks: bool = False
    ) -> Iterator[list[Tensor]]:
        """Yield the signs of `batch_rows` examples at a time, as ±1 or as masks. They are unpacked as asked for."""
        part = self.part
        over = [(dim, part.parameter_rows if part and dim == 0 else features) for dim, features in dims]
        for drawn in sign_batches(seed, self.key, over, self.first, self.count, dtype, masks, batch_rows):
            yield [
                self._of_part(flips, features, masks) if dim == 0 else flips
                for flips, (dim, features) in zip(drawn, dims, strict=True)
            ]

    def _of_part(self, flips: Tensor, features: int, masks: bool) -> Tensor:
        """Return the signs of dimension 0 for the rows that are used, negated in an antithetic draw."""
        if self.part:
            flips = flips.narrow(1, self.part.start, features)
        if not self.antithetic:
            return flips
        return flips ^ torch.iinfo(flips.dtype).min if masks else -flips

    def fused(self, dims: Sequence[tuple[int, int]], seed: Tensor, dtype: torch.dtype) -> list[Tensor]:
        """Return `over` in a compiled graph, unpacked from bits where the signs are used."""
        part = self.part
        over = [(dim, part.parameter_rows if part and dim == 0 else features) for dim, features in dims]
        drawn = fused_signs(seed, self.key, over, self.first, self.count, dtype)
        return [
            self._of_part(flips, features, False) if dim == 0 else flips
            for flips, (dim, features) in zip(drawn, dims, strict=True)
        ]

    def at(self, dim: int, example: Tensor, feature: Tensor, seed: Tensor, dtype: torch.dtype) -> Tensor:
        """Return single signs. `example` counts from the first example of these signs."""
        drawn = sign_at(seed, self.key, dim, example + self.first, feature, dtype)
        return -drawn if self.antithetic and dim == 0 else drawn


@dataclass(eq=False, slots=True)
class Perturbation:
    """A Parameter as the examples `first` onward see it: its mean, its ΔŴ and its signs under one draw.

    Products are computed in `dtype`. Noise is drawn in the Parameter's own dtype and then cast.
    """

    parameter: Tensor
    computed_spread: Tensor | None  # None if `source` is set
    distribution: Distribution
    draw: Draw
    key: int
    first: int
    examples: int
    dtype: torch.dtype
    part: Part | None = None
    source: Tensor | None = None  # the spread is its softplus, computed together with the noise
    noise: Tensor | None = None  # the noise of `bases` bases from `base` on, if drawn at once for the whole model
    base: int = 0
    bases: int = 1
    drawn: AtOnce | None = None  # holds the signs of this draw
    factors_learned: Tensor | None = None  # directions of a learned covariance, (rank, *shape)

    @property
    def spread(self) -> Tensor:
        if self.computed_spread is not None:
            return self.computed_spread
        assert self.source is not None
        return F.softplus(self.source)

    @property
    def mean(self) -> Tensor:
        mean = self.parameter if self.part is None else self._rows_of(self.parameter, 0)
        return mean if mean.dtype == self.dtype else mean.to(self.dtype)

    @property
    def spread_of_mean(self) -> Tensor:
        """The spread, expanded to the mean's shape."""
        return self._rows_of(self.spread.expand_as(self.parameter), 0)

    @property
    def signs(self) -> Signs:
        return Signs(self.key, self.first, self.examples, self.draw.antithetic, self.part, self.drawn)

    def seed_of_signs(self, reuse: bool) -> Tensor:
        return self.draw.seed_of_signs(reuse)

    def deltas(self, first: int, count: int) -> Tensor:
        """Return ΔŴ of the bases `first` onward, of shape (count, *shape)."""
        start = first - self.base
        if self.bases > 1 and self.noise is not None and 0 <= start <= self.bases - count:
            return self._rows_of(self.spread * self.noise.narrow(0, start, count), 1)
        if count == 1:
            return self._sample(*self._start(first)).unsqueeze(0)
        return self._sample(self._starts(NOISE, first, count))

    def shard_of_deltas(self, shard: Shard, count: int) -> Tensor:
        """Return this rank's part of `deltas(0, count)`. The spread is sharded too, and all ranks share one draw."""
        start = shard.agreed(self._starts(NOISE, 0, count)).view(-1, *[1] * len(shard.shape))
        stream = Stream(start, shard.full_shape, self.spread.dtype, shard.elements(start.device))
        return (self.spread * self.distribution.noise(stream)).to(self.dtype)

    def delta(self, base: int = 0) -> Tensor:
        """Return ΔŴ of one base."""
        if self.noise is not None and self.computed_spread is not None and base == self.base:
            delta = self.computed_spread * (self.noise if self.bases == 1 else self.noise[0])
            return delta if self.part is None else self._rows_of(delta, 0)
        return self._sample(*self._start(base))

    def kernel_inputs(self, base: int) -> tuple[Tensor, Tensor, ScaledNoise] | None:
        """Return what a fused kernel needs to compute ΔŴ of one base.

        Returns:
            The spread or its source, the start of the noise, and how the two combine. None if no kernel fits, or if the
            spread itself needs a gradient.
        """
        if self.part is not None or is_transformed():
            return None
        factor, scaled = self._scaled(None)
        spread_needs_grad = factor.requires_grad and not scaled.softplus
        if spread_needs_grad or scaled.kernel(self.draw.seed, factor, softplus=scaled.softplus) is None:
            return None
        start, origin = self._start(base)
        return factor, start, scaled._replace(origin=origin)

    def starts(self, first: int, count: int) -> Tensor | None:
        """Return (count,) stream starts of the bases `first` onward, or None unless ΔŴ is one number times N(0, 1)."""
        spread = self.computed_spread
        has_one_std = self.distribution.gaussian and spread is not None and spread.dim() == 0 and self.part is None
        return self._starts(NOISE, first, count) if has_one_std else None

    def delta_rows(self, row: Tensor, base: Tensor, first: int, count: int) -> Tensor:
        """Return single rows of a 2-D ΔŴ, of shape (*row.shape, width).

        Args:
            row: Indices of the rows.
            base: The base of each row, among the `count` bases `first` onward.
            first: The first base.
            count: The number of bases.
        """
        height, width = self.parameter.shape
        if count == 1 and row.numel() >= height:
            return F.embedding(row, self.delta(first))
        start = self._starts(NOISE, first, count)[base - first].unsqueeze(-1)
        element = row.unsqueeze(-1) * width + torch.arange(width, device=row.device)
        noise = self.distribution.noise(Stream(start, (height, width), self.spread.dtype, element))
        return (self.spread_rows(row) * noise).to(self.dtype)

    def spread_rows(self, row: Tensor) -> Tensor:
        """Return rows of the spread, broadcastable to (*row.shape, width)."""
        return self.spread if self.spread.dim() == 0 else F.embedding(row, self.spread.expand_as(self.parameter))

    def factors(self, rank: int, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Return the low-rank factors of the examples `first` onward, (count, d0, rank) and (count, rank, …).

        Each entry of their product has the spread as its standard deviation. All entries of a row must share it.
        """
        start, (d0, *others) = self._starts(NOISE, first, count), self.parameter.shape
        left = Stream(start, (d0, rank), self.spread.dtype).normal() * (self.spread / math.sqrt(rank))
        right = Stream(start, (rank, *others), self.spread.dtype).normal(1)
        return self.oriented(self._rows_of(left, 1)).to(self.dtype), right.to(self.dtype)

    def left_rows(self, rank: int, row: Tensor, example: Tensor) -> Tensor:
        """Return row `row` of the left factors of `example`, for each entry of the two: (*row.shape, rank)."""
        start = self._starts(NOISE, self.first, self.examples)[example].unsqueeze(-1)
        element = row.unsqueeze(-1) * rank + torch.arange(rank, device=row.device)
        left = Stream(start, (self.parameter.shape[0], rank), self.spread.dtype, element).normal()
        spread = self.spread if self.spread.dim() == 0 else self.spread[row]
        return self.oriented(left * (spread / math.sqrt(rank))).to(self.dtype)

    def oriented(self, delta: Tensor) -> Tensor:
        """Return ΔŴ, negated in an antithetic draw. Schemes without signs use this."""
        if self.draw.antithetic and not self.distribution.symmetric:
            raise AsymmetricDistribution(
                f"An antithetic draw of {self.distribution}: its negative has another distribution. Use noise that is "
                "symmetric about 0, or hold without antithetic=True."
            )
        return -delta if self.draw.antithetic else delta

    def output_noise(self, shape: tuple[int, ...]) -> Tensor:
        """Return N(0, 1) noise of shape (examples, *shape) for the local reparameterisation."""
        start = self._starts(OUTPUT_NOISE, self.first, self.examples)
        return self.oriented(Stream(start, shape, self.dtype).normal(self.part.start if self.part else 0))

    @property
    def factors_of_mean(self) -> Tensor | None:
        """The directions of a learned covariance, (rank, *shape of the mean)."""
        learned = self.factors_learned
        return None if learned is None else self._rows_of(learned, 1).to(self.dtype)

    def coefficients(self, is_shared: bool) -> Tensor:
        """Return the N(0, 1) coefficients of the directions, (examples, rank), or (1, rank) if all examples share."""
        assert self.factors_learned is not None
        first, count = (0, 1) if is_shared else (self.first, self.examples)
        start = self._starts(COEFFICIENTS, first, count)
        return self.oriented(Stream(start, self.factors_learned.shape[:1], self.dtype).normal())

    def for_examples(self, first: int, examples: int) -> Self:
        """Return this Parameter as other examples see it."""
        return replace(self, first=first, examples=examples)

    def _sample(self, start: Tensor, origin: Origin | None = None) -> Tensor:
        factor, scaled = self._scaled(origin)
        return self._rows_of(sample(scaled, factor, start, self.dtype), start.dim())

    def _scaled(self, origin: Origin | None) -> tuple[Tensor, ScaledNoise]:
        """Return the spread or its source, and how it is multiplied with noise."""
        factor, softplus = (self.spread, False) if self.source is None else (self.source, True)
        return factor, ScaledNoise(self.distribution, self.parameter.shape, factor.dtype, origin, softplus)

    def _start(self, base: int) -> tuple[Tensor, Origin | None]:
        """Return the start of the noise of one base, or the seed and the origin to compute it from."""
        if self.draw.can_keep_seeds:
            return self.draw.seed, Origin(self.key, NOISE, base, self.draw.fold)
        return self._starts(NOISE, base, 1).squeeze(0), None

    def _starts(self, kind: int, first: int, count: int) -> Tensor:
        return stream_starts(self.draw.seed, self.key, kind, first, count, self.draw.fold)

    def _rows_of(self, tensor: Tensor, dim: int) -> Tensor:
        """Return the rows of `part`, in dimension `dim`."""
        return tensor.narrow(dim, self.part.start, self.part.length) if self.part else tensor
