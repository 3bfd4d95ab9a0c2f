"""Figures 2b, 2c and 2d: FlipES against fully independent perturbations, and against backpropagation."""

from dataclasses import dataclass, field
from typing import Literal

from flipout.errors import InvalidArgument

from ..running.experiment import Config, Outcome, check_least
from ..running.results import Check, Number
from ..running.runs import Run
from ..training.supervised import Prepared, build_network, isolated_randomness, prepare
from . import claims
from .curves import EsCurve, EsCurves, logged, named, trained
from .estimates import NOISY, drawn
from .figures import curves_figure
from .training import EsTraining


@dataclass(frozen=True)
class EsConfig(Config):
    training: EsTraining = field(default_factory=EsTraining)
    against: Literal["IdealES", "backprop"] = "IdealES"
    samples: tuple[int, ...] = (1600,)  # members of an update
    seeds: int = 5
    probe: int = 10_000  # training examples on which loss and error are measured
    draws: int = 60  # estimates by each method at one network

    def __post_init__(self) -> None:
        check_least(self, seeds=2, probe=1, draws=10)
        if not self.samples or any(count % self.training.group for count in self.samples):
            raise InvalidArgument(f"samples={self.samples}: expected multiples of group={self.training.group}.")
        if len({*self.samples}) < len(self.samples):
            raise InvalidArgument(f"samples={self.samples}: give each number once.")

    @property
    def methods(self) -> list[tuple[str, int]]:
        others = [("backprop", 0)] if self.against == "backprop" else [("IdealES", count) for count in self.samples]
        return [*(("FlipES", count) for count in self.samples), *others]

    @property
    def trained(self) -> list[tuple[str, int, int]]:
        return [(method, samples, seed) for seed in range(self.seeds) for method, samples in self.methods]


def work(config: EsConfig, run: Run) -> Outcome:
    prepared = prepare(config.training, run)
    estimates = ["FlipES", *(["IdealES"] if config.against == "IdealES" else []), NOISY]
    found = {
        method: run.piece(
            f"estimates.{method.replace(' ', '-')}",
            lambda m=method: drawn(config.training, prepared, m, config.samples[0], config.draws, run),
        )
        for method in run.progress.track(estimates, "estimates")
    }
    curves = EsCurves(
        EsCurve(
            **run.piece(
                ".".join(map(str, training)),
                lambda o=training: trained(config.training, prepared, *o, config.probe, run),
            )
        )
        for training in run.progress.track(config.trained, "train", _cost)
    )
    checks, numbers, paper = _compared(config, curves)
    checks = [claims.same_gradient(found), *checks]
    if config.against == "IdealES":
        with isolated_randomness(run):
            weights = sum(parameter.numel() for parameter in build_network(config.training, prepared).parameters())
        more, ratios = claims.variances(found, config.training.group // 2, weights)
        checks[1:1], numbers = more, {**numbers, **ratios}
    return Outcome(_setting(config, prepared), numbers, paper, tuple(checks))


def draw(config: EsConfig, run: Run) -> None:
    curves = (
        logged(run, f"{method}.{samples}.{seed}", named(method, samples), seed)
        for method, samples, seed in config.trained
    )
    run.draw(
        claims.FIGURE,
        "Training loss and error per update, at the mean weights. Lines: the mean over the seeds; bands: from the "
        "lowest to the highest seed.",
        curves_figure(EsCurves(curves)),
    )


def _compared(config: EsConfig, curves: EsCurves) -> tuple[list[Check], dict[str, Number], dict[str, Number]]:
    numbers = claims.numbers(curves)
    flips = [named("FlipES", samples) for samples in config.samples]
    if config.against == "IdealES":
        names = [(flip, named("IdealES", n)) for flip, n in zip(flips, config.samples, strict=True)]
        return [check for pair in names for check in claims.no_loss(curves, *pair)], numbers, {}
    checks = [claims.comparable(curves, flip) for flip in flips]
    checks += [claims.lower(curves, flips[-1], fewer) for fewer in flips[:-1]]
    for flip in flips:
        price = claims.seconds(curves, flip) / claims.seconds(curves, "backprop")
        numbers[f"{flip} / backprop: time of an update"] = price
    return checks, numbers, {f"{flips[-1]} / backprop: time of an update": claims.PRICE}


def _cost(training: tuple[str, int, int]) -> float:
    method, samples, _ = training
    return {"FlipES": samples, "IdealES": 2 * samples, "backprop": 10}[method]


def _setting(config: EsConfig, prepared: Prepared) -> str:
    training = config.training
    shape = "-".join(map(str, training.hidden)) if training.network == "fc" else f"of width {training.width:g}"
    pairs = " (pairs and their mirror images)" if training.antithetic else ""
    shaping = {"centered_rank": "centred ranks", "z_score": "z-scores", "raw": "raw fitness"}[training.shaping]
    rate = f" ({training.backprop_rate:g} for backprop)" if config.against == "backprop" else ""
    return (
        f"{prepared.source}; {training.network} {shape}; each member has Gaussian noise of {training.std:g} on all "
        f"weights and biases, {training.group} members{pairs} share one ΔŴ in FlipES; "
        f"fitness: the mean log-likelihood of {training.batch} examples, drawn with replacement, the same for all "
        f"members; {shaping}, Adam from {training.learning_rate:g}{rate} to 0, {training.updates} updates, "
        f"{config.seeds} seeds, each with the same network and batches by every method. Estimates: raw fitness, at the "
        "network of the first seed."
    )
