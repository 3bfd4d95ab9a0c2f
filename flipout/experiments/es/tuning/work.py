"""Tune FlipES and backpropagation with the same care, on a part of the training data that neither trains on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from flipout.errors import InvalidArgument

from ...running.experiment import Config, Outcome, check_least
from ...running.runs import Run
from ...training.supervised import Prepared, prepare
from ..curves import EsCurve, EsCurves, logged, trained
from ..training import EsTraining, Shaping
from .claims import FIGURE, best, found, score
from .figures import scores_figure


@dataclass(frozen=True)
class TuningConfig(Config):
    """First every standard deviation with every rate, then shaping and mirrored pairs at the best of these.

    Test data is never read. What the candidates are compared by is in `claims.score`.
    """

    training: EsTraining = field(default_factory=EsTraining)
    samples: int = 5000
    held_out: int = 10_000  # training examples that are not trained on
    stds: tuple[float, ...] = (0.01, 0.02, 0.05, 0.1)
    rates: tuple[float, ...] = (0.005, 0.01, 0.02, 0.04)
    shapings: tuple[Shaping, ...] = ("centered_rank", "z_score", "raw")
    backprop_rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
    seeds: int = 1

    def __post_init__(self) -> None:
        check_least(self, seeds=1, held_out=10)
        if self.samples <= 0 or self.samples % self.training.group:
            raise InvalidArgument(f"samples={self.samples}: expected a multiple of group={self.training.group}.")
        for name in ("stds", "rates", "shapings", "backprop_rates"):
            candidates = getattr(self, name)
            if not candidates or len({*candidates}) < len(candidates):
                raise InvalidArgument(f"{name}={candidates}: expected at least one candidate, each once.")


@dataclass(frozen=True)
class EsCandidate:
    """One setting of a method, and the name under which its curves are kept."""

    method: str
    training: EsTraining

    @property
    def name(self) -> str:
        training = self.training
        if self.method == "backprop":
            return f"backprop rate={training.backprop_rate:g}"
        pairs = "pairs" if training.antithetic else "single"
        return f"FlipES std={training.std:g} rate={training.learning_rate:g} {training.shaping} {pairs}"


def work(config: TuningConfig, run: Run) -> Outcome:
    prepared = split(prepare(config.training, run), config.held_out)
    curves: dict[str, EsCurve] = {}  # by piece: the chosen noise comes again among the shapings

    def chosen(candidates: Sequence[EsCandidate], what: str) -> EsTraining:
        for candidate, seed in run.progress.track(list(product(candidates, range(config.seeds))), what):
            piece = _piece(candidate, seed)
            curves[piece] = EsCurve(**run.piece(piece, lambda c=candidate, s=seed: train(c, s)))
        name = best(EsCurves(curves.values()), [candidate.name for candidate in candidates])
        return next(candidate.training for candidate in candidates if candidate.name == name)

    def train(candidate: EsCandidate, seed: int) -> dict[str, Any]:
        samples = 0 if candidate.method == "backprop" else config.samples
        return trained(
            candidate.training, prepared, candidate.method, samples, seed, config.held_out, run, candidate.name
        )

    chosen(list(_backprop(config)), "backprop")
    training = chosen(list(_noise(config)), "std and rate")
    chosen(list(_shaping(config, training)), "shaping and pairs")
    numbers, checks = found(EsCurves(curves.values()))
    return Outcome(_setting(config, prepared), numbers, {}, checks)


def draw(config: TuningConfig, run: Run) -> None:
    noise = list(_noise(config))
    curves = EsCurves(
        logged(run, _piece(candidate, seed), candidate.name, seed)
        for candidate in [*_backprop(config), *noise]
        for seed in range(config.seeds)
    )
    scores = {
        (candidate.training.std, candidate.training.learning_rate): score(curves.of(candidate.name))
        for candidate in noise
    }
    backprop = {c.training.backprop_rate: score(curves.of(c.name)) for c in _backprop(config)}
    run.draw(
        FIGURE,
        "The error of held-out training examples, averaged over the whole curve (the geometric mean over updates that "
        "grow by a tenth): FlipES by standard deviation and rate, backpropagation by rate. Lower is better.",
        scores_figure(scores, backprop),
    )


def split(prepared: Prepared, held_out: int) -> Prepared:
    """Return training data without its last examples, with those in place of the test data."""
    if not held_out < len(prepared.x):
        raise InvalidArgument(f"held_out={held_out}: expected fewer than the {len(prepared.x)} training examples.")
    return replace(
        prepared,
        x=prepared.x[:-held_out],
        y=prepared.y[:-held_out],
        x_test=prepared.x[-held_out:],
        y_test=prepared.y[-held_out:],
    )


def _backprop(config: TuningConfig) -> Iterator[EsCandidate]:
    for rate in config.backprop_rates:
        yield EsCandidate("backprop", replace(config.training, backprop_rate=rate))


def _noise(config: TuningConfig) -> Iterator[EsCandidate]:
    for std, rate in product(config.stds, config.rates):
        yield EsCandidate("FlipES", replace(config.training, std=std, learning_rate=rate))


def _shaping(config: TuningConfig, training: EsTraining) -> Iterator[EsCandidate]:
    """Yield the chosen setting with every shaping, with and without mirrored pairs. One of these was trained before."""
    for shaping, antithetic in product(config.shapings, (True, False)):
        yield EsCandidate("FlipES", replace(training, shaping=shaping, antithetic=antithetic))


def _piece(candidate: EsCandidate, seed: int) -> str:
    return f"{candidate.name.replace(' ', '_').replace('=', '-')}.{seed}"


def _setting(config: TuningConfig, prepared: Prepared) -> str:
    training = config.training
    return (
        f"{prepared.source}, the last {config.held_out:,} training examples held out and the test data not read; "
        f"{training.network}; FlipES with {config.samples:,} members in groups of {training.group}, backprop on the "
        f"same batches of {training.batch}; Adam, whose rate falls linearly to 0 in {training.updates} updates; "
        f"{config.seeds} seed{'s' * (config.seeds > 1)}. Candidates are compared by the geometric mean of the held-out "
        "error over the curve."
    )
