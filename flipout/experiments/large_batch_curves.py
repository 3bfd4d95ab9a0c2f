"""Training curves: what was seen of each network on its way, when a loss was reached, and their figures."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from flipout.variance._figures import COLOURS

Loss = Literal["likelihood", "total"]
_TITLES = {"likelihood": "expected negative log-likelihood", "divergence": "weighted KL", "total": "total"}


@dataclass(frozen=True)
class Curve:
    """One network, looked at after `iterations`; nats per example. `batches` is the likelihood term of every step."""

    scheme: str
    seed: int
    iterations: list[int]
    likelihood: list[float]
    divergence: list[float]
    train_error: list[float]
    test_error: list[float]
    batches: list[float]

    @property
    def total(self) -> list[float]:
        return [a + b for a, b in zip(self.likelihood, self.divergence, strict=True)]

    def best(self, loss: Loss, iteration: float) -> float:
        """The lowest loss up to an iteration."""
        seen = zip(self.iterations, getattr(self, loss), strict=True)
        return min(value for at, value in seen if at <= iteration)

    def reached(self, loss: Loss, level: float) -> float:
        return reached(self.iterations, getattr(self, loss), level)


def points(iterations: int) -> list[int]:
    """Iterations at which a network is looked at: each a tenth after the one before."""
    made = {0, iterations}
    at = 1.0
    while at < iterations:
        made.add(round(at))
        at *= 1.1
    return sorted(made)


def reached(iterations: Sequence[int], values: Sequence[float], level: float) -> float:
    """The first iteration at which a value is down to a level, between two looks on a line; infinite if never.

    A curve that jumps about is down there early by luck: this favours the noisier one.
    """
    if values[0] <= level:
        return 0.0
    for (before, high), (after, low) in pairwise(zip(iterations, values, strict=True)):
        if low <= level:
            return before + (after - before) * (high - level) / (high - low)
    return math.inf


class Curves:
    def __init__(self, curves: Iterable[Curve]) -> None:
        self.curves = tuple(curves)

    @property
    def schemes(self) -> list[str]:
        return list(dict.fromkeys(curve.scheme for curve in self.curves))

    @property
    def iterations(self) -> int:
        return self.curves[0].iterations[-1]

    def of(self, scheme: str) -> list[Curve]:
        return [curve for curve in self.curves if curve.scheme == scheme]

    def level(self, loss: Loss, iteration: float) -> float:
        """The loss that shared perturbations have reached after so many iterations, whatever the seed."""
        return max(curve.best(loss, iteration) for curve in self.of("shared"))

    def last(self, scheme: str, column: str) -> list[float]:
        """At the end, for each seed."""
        return [getattr(curve, column)[-1] for curve in self.of(scheme)]


def losses_figure(curves: Curves):
    made, panels = _panels(list(_TITLES))
    for scheme in curves.schemes:
        batches = curves.of(scheme)[0].batches
        panels["likelihood"].plot(
            np.arange(1, len(batches) + 1), batches, lw=0.5, alpha=0.45, color=COLOURS[scheme], zorder=1
        )
    for column, axes in panels.items():
        for scheme in curves.schemes:
            band(axes, curves.of(scheme), column, COLOURS[scheme], "-", scheme)
        axes.set(title=_TITLES[column], xlabel="iteration", xlim=(1, curves.iterations), xscale="log")
    panels["likelihood"].set(ylabel="nats per example", yscale="log")
    panels["total"].legend(fontsize=8)
    return made


def errors_figure(curves: Curves):
    from matplotlib.figure import Figure

    made = Figure(figsize=(5.2, 3.6), layout="constrained")
    axes = made.subplots()
    for scheme in curves.schemes:
        band(axes, curves.of(scheme), "test_error", COLOURS[scheme], "-", scheme)
        band(axes, curves.of(scheme), "train_error", COLOURS[scheme], "--", None)
    axes.set(xlabel="iteration", ylabel="error", xlim=(1, curves.iterations), xscale="log")
    axes.set_yscale("symlog", linthresh=0.01)  # training errors get to 0
    axes.set_ylim(0, 1)
    axes.legend(fontsize=8)
    return made


def _panels(names: Sequence[str]):
    from matplotlib.figure import Figure

    made = Figure(figsize=(3.4 * len(names) + 0.6, 3.6), layout="constrained")
    return made, dict(zip(names, made.subplots(1, len(names)), strict=True))


def band(axes, curves: Sequence[Any], column: str, colour: str, style: str, label: str | None) -> None:
    """A line for the mean over curves with the same `iterations`, and a band from the lowest to the highest."""
    begin = curves[0].iterations[0] == 0  # which a logarithmic axis has no place for
    at = np.asarray(curves[0].iterations[begin:])
    values = np.asarray([getattr(curve, column)[begin:] for curve in curves])
    axes.fill_between(at, values.min(0), values.max(0), color=colour, alpha=0.2, lw=0, zorder=2)
    axes.plot(at, values.mean(0), style, color=colour, lw=1.5, label=label, zorder=3)
