"""Learning rates and stopping, from the validation losses so far."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flipout.errors import InvalidArgument

from ..running.experiment import check_least


@dataclass(frozen=True)
class Schedule:
    """A learning rate, as a function of the validation losses alone, so that a resumed run needs no other state.

    `nonmonotonic` divides it by `factor` when a validation loss is above the best of all but the last `patience` before
    it (Merity et al., 2017).
    """

    rate: float = 30.0
    epochs: int = 100
    form: Literal["nonmonotonic", "cosine", "constant"] = "nonmonotonic"
    factor: float = 4.0
    patience: int = 5
    rest: int = 0  # epochs without another division after one
    stop: int = 0  # epochs without a new best before stopping; 0: never stop

    def __post_init__(self) -> None:
        check_least(self, "schedule.", epochs=1, patience=0, rest=0, stop=0)
        if not (self.rate > 0 and self.factor >= 1):
            raise InvalidArgument(f"schedule.rate={self.rate}, factor={self.factor}: expected a rate > 0, factor ≥ 1.")

    def next(self, losses: Sequence[float]) -> float:
        """Return the rate of the next epoch."""
        if self.form == "cosine":
            return self.rate * 0.5 * (1 + math.cos(math.pi * len(losses) / self.epochs))
        return self.rate if self.form == "constant" else self.rate / self.factor ** len(self.divisions(losses))

    def divisions(self, losses: Sequence[float]) -> list[int]:
        """Return the epochs after which the rate was divided."""
        found: list[int] = []
        for epoch, loss in enumerate(losses):
            before = losses[: max(epoch - self.patience, 0)]
            rested = not found or epoch - found[-1] > self.rest
            if before and rested and not loss <= min(before):
                found.append(epoch)
        return found

    def ended(self, losses: Sequence[float]) -> str | None:
        """Return why there is no further epoch, or None."""
        if losses and not math.isfinite(losses[-1]):
            return "not finite"
        if self.stop and len(losses) - 1 - best(losses) >= self.stop:
            return "early stopping"
        return "epochs" if len(losses) >= self.epochs else None


def best(losses: Sequence[float]) -> int:
    """Return the first epoch with the lowest finite loss; −1 if there are none."""
    return min(range(len(losses)), key=lambda i: losses[i] if math.isfinite(losses[i]) else math.inf) if losses else -1
