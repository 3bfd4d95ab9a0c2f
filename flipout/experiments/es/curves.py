"""Training curves of evolution strategies and of backpropagation."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from ..evidence.curves import cost, legs, reached
from ..running.runs import Run
from ..training.supervised import Prepared, isolated_randomness
from .training import EsTrainer, EsTraining, Task


@dataclass(frozen=True)
class EsCurve:
    """One network, measured after `iterations` updates at the mean weights, in nats per example."""

    name: str  # the method and its samples
    seed: int
    iterations: list[int]
    loss: list[float]
    train_error: list[float]
    test_error: list[float]
    seconds: float  # per update

    def reached(self, column: str, level: float) -> float:
        return reached(self.iterations, getattr(self, column), level)


class EsCurves:
    def __init__(self, curves: Iterable[EsCurve]) -> None:
        self.curves = tuple(curves)

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(curve.name for curve in self.curves))

    @property
    def updates(self) -> int:
        return self.curves[0].iterations[-1]

    def of(self, name: str) -> list[EsCurve]:
        return [curve for curve in self.curves if curve.name == name]

    def last(self, name: str, column: str) -> list[float]:
        """Return the last value of each seed."""
        return [getattr(curve, column)[-1] for curve in self.of(name)]


def named(method: str, samples: int) -> str:
    """Return the name of a curve, such as "FlipES 1,600"."""
    return method if method == "backprop" else f"{method} {samples:,}"


def trained(
    config: EsTraining, prepared: Prepared, method: str, samples: int, seed: int, probe: int, run: Run, name: str = ""
) -> dict:
    measured: list[dict[str, float]] = []
    with isolated_randomness(run):
        noise = run.seed_of(f"noise.{method}.{samples}.{seed}")
        trainer = EsTrainer(Task(config, prepared, seed, run), method, samples, noise)
        way = legs(config.updates)
        for before, now in run.progress.track(way, f"{name or named(method, samples)}, seed {seed}", cost):
            trainer.train(now - before)
            measured.append(trainer.measure(probe))
            run.log(now, **measured[-1])
    columns = {column: [point[column] for point in measured] for column in measured[0]}
    seconds = trainer.seconds / config.updates
    at = [now for _, now in way]
    return asdict(EsCurve(name or named(method, samples), seed, at, **columns, seconds=seconds))


def logged(run: Run, piece: str, name: str, seed: int) -> EsCurve:
    """Return a curve from the metrics of a run. Metrics do not say how long the training took."""
    lines = run.metrics_of(piece)
    columns = {column: [line[column] for line in lines] for column in ("loss", "train_error", "test_error")}
    return EsCurve(name, seed, [line["step"] for line in lines], **columns, seconds=math.nan)
