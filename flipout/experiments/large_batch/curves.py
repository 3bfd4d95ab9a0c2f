"""Training curves under each scheme."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ..evidence.curves import reached

Loss = Literal["likelihood", "total"]


@dataclass(frozen=True)
class LossCurve:
    """One network, measured after `iterations`, in nats per example. `batches` has the likelihood term of each step."""

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
        """Return the lowest loss up to an iteration."""
        points = zip(self.iterations, getattr(self, loss), strict=True)
        return min(value for at, value in points if at <= iteration)

    def reached(self, loss: Loss, level: float) -> float:
        return reached(self.iterations, getattr(self, loss), level)


class Curves:
    def __init__(self, curves: Iterable[LossCurve]) -> None:
        self.curves = tuple(curves)

    @property
    def schemes(self) -> list[str]:
        return list(dict.fromkeys(curve.scheme for curve in self.curves))

    @property
    def iterations(self) -> int:
        return self.curves[0].iterations[-1]

    def of(self, scheme: str) -> list[LossCurve]:
        return [curve for curve in self.curves if curve.scheme == scheme]

    def level(self, loss: Loss, iteration: float) -> float:
        """Return the loss that all seeds under shared perturbations have reached after an iteration."""
        return max(curve.best(loss, iteration) for curve in self.of("shared"))

    def last(self, scheme: str, column: str) -> list[float]:
        """Return the last value of each seed."""
        return [getattr(curve, column)[-1] for curve in self.of(scheme)]
