"""Learning rates that follow from the validation losses so far, and when to stop."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flipout.errors import InvalidArgument

from ..running.experiment import check_least


@dataclass(frozen=True)
class Schedule:
    """`nonmonotonic`: divided by `factor` when a validation loss is above the best of all but the last `patience`
    before it (Merity et al., 2017). It is a function of the losses alone: a run taken up again needs no other state."""

    rate: float = 30.0
    epochs: int = 100
    form: Literal["nonmonotonic", "cosine", "constant"] = "nonmonotonic"
    factor: float = 4.0
    patience: int = 5
    rest: int = 0  # epochs after a division without another
    stop: int = 0  # after so many epochs without a new best; 0: never

    def __post_init__(self) -> None:
        check_least(self, "schedule.", epochs=1, patience=0, rest=0, stop=0)
        if not (self.rate > 0 and self.factor >= 1):
            raise InvalidArgument(f"schedule.rate={self.rate}, factor={self.factor}: expected a rate > 0, factor ≥ 1.")

    def next(self, losses: Sequence[float]) -> float:
        """The rate of the epoch after those with these validation losses."""
        if self.form == "cosine":
            return self.rate * 0.5 * (1 + math.cos(math.pi * len(losses) / self.epochs))
        return self.rate if self.form == "constant" else self.rate / self.factor ** len(self.divisions(losses))

    def divisions(self, losses: Sequence[float]) -> list[int]:
        """After which epochs the rate was divided."""
        found: list[int] = []
        for epoch, loss in enumerate(losses):
            before = losses[: max(epoch - self.patience, 0)]
            rested = not found or epoch - found[-1] > self.rest
            if before and rested and not loss <= min(before):
                found.append(epoch)
        return found

    def ended(self, losses: Sequence[float]) -> str | None:
        """Why there is no further epoch, if so."""
        if losses and not math.isfinite(losses[-1]):
            return "not finite"
        if self.stop and len(losses) - 1 - best(losses) >= self.stop:
            return "early stopping"
        return "epochs" if len(losses) >= self.epochs else None


def best(losses: Sequence[float]) -> int:
    """The epoch of the lowest, the first of several; what is not a number never is."""
    return min(range(len(losses)), key=lambda i: losses[i] if math.isfinite(losses[i]) else math.inf) if losses else -1
