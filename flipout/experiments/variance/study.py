"""The work that the variance experiments share: a frozen network, its measured curves, and its α, β and γ."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

import flipout
from flipout.errors import DataError, InvalidArgument
from flipout.variance import Decomposition, Measurements, Record

from ..door import Mismatch, parse_json, read_plain, typed
from ..running.experiment import check_least
from ..running.results import to_json
from ..running.runs import Run
from ..training.supervised import autocast, set_precision
from .language_pretraining import LanguagePretraining
from .pretraining import Frozen, Pretraining

SIZES = tuple(2**i for i in range(14))
MeasuredScheme = Literal["shared", "flipout", "local_reparam", "independent"]


def decompositions(path: Path) -> list[Decomposition]:
    """Read the decomposition.json of a run."""
    try:
        return typed(parse_json(read_plain(path)), list[Decomposition])
    except (OSError, Mismatch) as error:
        raise DataError(f"{path} is not the decomposition of a run ({error}): copy it again.") from error


@dataclass(frozen=True)
class StudyConfig:
    """How curves are measured: `draws` gradients for an estimate of a variance, `repeats` estimates for an interval."""

    pretraining: Pretraining | LanguagePretraining = field(default_factory=Pretraining)
    std: float = 1.0  # of the multiplicative Gaussian noise
    schemes: tuple[MeasuredScheme, ...] = ("shared", "flipout", "local_reparam", "independent")
    batch_sizes: tuple[int, ...] = SIZES
    draws: int = 200
    repeats: int = 50
    large: int = 512  # larger batches are repeated `large_repeats` times
    large_repeats: int = 50
    # Independent noise is by far the most expensive scheme: every example has its own weights. It is repeated until it
    # has seen `independent_examples` per draw, at least 3 times, in batches up to `independent_most`.
    independent_examples: int = 1024
    independent_most: int = 8192
    pairs: int = 1000  # pairs of batches, for β and γ
    pair_batch: int = 256
    examples: int = 20_000  # examples, for α
    sub_batch: int = 1024
    at_once: int | None = None  # draws in one vmap, for batches no larger than that
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"  # of products on a GPU

    def __post_init__(self) -> None:
        check_least(self, draws=2, repeats=2, large_repeats=2, pairs=2, pair_batch=1, examples=40, sub_batch=1)
        if not self.schemes or not self.batch_sizes or min(self.batch_sizes) < 1:
            raise InvalidArgument(
                f"schemes={self.schemes}, batch_sizes={self.batch_sizes}: expected at least one of each, and sizes ≥ 1."
            )

    def repeats_of(self, scheme: str, size: int) -> int:
        repeats = self.repeats if size <= self.large else self.large_repeats
        return min(repeats, max(3, self.independent_examples // size)) if scheme == "independent" else repeats

    def at_once_of(self, size: int) -> int | None:
        return 1 if self.at_once is not None and size > self.at_once else self.at_once


class Study:
    """A frozen network and its measurements. `name` begins the names of its pieces, if a run has several studies."""

    def __init__(self, config: StudyConfig, run: Run, name: str = "") -> None:
        set_precision(config)
        torch.backends.cudnn.benchmark = True
        self.config, self.run, self.name = config, run, name
        self.frozen: Frozen = config.pretraining.freeze(config.std, run, name)
        self.model = self.frozen.model
        self.layers = [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]

    def points(self) -> list[tuple[str, int, int]]:
        """Return (scheme, batch size, bases) of every point of the curves."""
        config = self.config
        return [
            (scheme, size, 1)
            for scheme in config.schemes
            for size in config.batch_sizes
            if scheme != "independent" or size <= config.independent_most
        ]

    def measured(self, points: Iterable[tuple[str, int, int]], title: str = "measure") -> Measurements:
        """Measure the variance at each (scheme, batch size, bases), as a piece of work each."""
        listed = list(points)
        rows: dict[tuple[str, int, int], list[dict]] = {}
        # Small batches first: they tell the speed of each scheme early, and so the time that is left.
        in_order = sorted(listed, key=lambda point: point[1])
        for point in self.run.progress.track(in_order, title, self._cost, kind=lambda point: point[0]):
            scheme, size, bases = point
            shares = f".{bases}-bases" if bases > 1 else ""
            name = f"{self.name}variance.{scheme}.{size}{shares}"
            rows[point] = self.run.piece(name, lambda n=name, point=point: self._measure(n, *point))
        return Measurements([Record(**row) for point in listed for row in rows[point]])

    def decomposed(self) -> list[Decomposition]:
        """Estimate α, β and γ of every layer."""
        terms = self.run.piece(f"{self.name}theorem", self._decompose)
        file = f"{self.name}decomposition.json"
        self.run.files.write(file, to_json(terms))
        return decompositions(self.run.folder / file)

    def _cost(self, point: tuple[str, int, int]) -> float:
        scheme, size, _ = point
        # A call costs as much as 80 examples of a scheme that shares the weights, and as 2 that have their own.
        calls = 2 if scheme == "independent" else 80
        return self.config.repeats_of(scheme, size) * (size + calls)

    def _measure(self, name: str, scheme: Any, size: int, bases: int) -> list[dict]:
        config = self.config
        with autocast(self.config, self.run.device):
            measured = flipout.variance.measure(
                self.model,
                self.frozen.loss,
                self.frozen.data,
                batch_sizes=[size],
                schemes=[scheme],
                draws=config.draws,
                repeats=config.repeats_of(scheme, size),
                generator=self.run.generator(name),
                sub_batch=config.sub_batch,
                at_once=config.at_once_of(size),
                bases=bases,
                progress=self._tracked(f"{scheme}, N = {size}"),
            )
        for record in measured:
            self.run.log(size, **{record.parameter: record.variance})
        return measured.to_rows()

    def _decompose(self) -> list[dict]:
        titles = iter(("α", "β and γ"))  # of the two loops in `decompose`
        with autocast(self.config, self.run.device):
            terms = flipout.variance.decompose(
                self.model,
                self.frozen.loss,
                self.frozen.data,
                pairs=self.config.pairs,
                batch_size=self.config.pair_batch,
                examples=self.config.examples,
                generator=self.run.generator(f"{self.name}theorem"),
                sub_batch=self.config.sub_batch,
                at_once=self.config.at_once,
                progress=lambda items: self.run.progress.track(items, next(titles, "α, β, γ")),
            )
        return [asdict(decomposition) for decomposition in terms]

    def _tracked(self, title: str) -> Callable[[Iterable], Iterator]:
        return lambda items: self.run.progress.track(items, title)
