"""What makes a strategy the one it is: two with the same settings, model and fitness go the same way."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._arguments import whole_number
from ..errors import InvalidArgument
from ..schemes import Flipout, Scheme
from .shaping import Shaping


@dataclass(frozen=True)
class Settings:
    population: int
    group: int
    std: float | Callable[[int], float]
    scheme: Scheme
    antithetic: bool
    shaping: Shaping
    weight_decay: float
    seed: int

    def __post_init__(self) -> None:
        for name, least in (("population", 1), ("group", 1), ("seed", None)):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least))
        if self.antithetic and self.group % 2:
            raise InvalidArgument(
                f"group={self.group} with antithetic=True: a group is made of pairs. Use group={self.group + 1}."
            )
        if self.population % self.group:
            below = self.population // self.group * self.group
            near = f"{below} or {below + self.group}" if below else f"{self.group}, or group={self.population}"
            raise InvalidArgument(
                f"population={self.population}, group={self.group}: {self.group} members share one ΔŴ, and a "
                f"population is made of whole groups. Use population={near}."
            )
        if not _is_number(self.weight_decay) or self.weight_decay < 0:
            raise InvalidArgument(f"weight_decay={self.weight_decay!r}: expected a finite number ≥ 0.")
        if isinstance(self.scheme, Flipout) and self.scheme.group not in (None, self.shared):
            raise InvalidArgument(
                f"scheme={self.scheme}, group={self.group} given: they differ. Leave the group to the strategy's own "
                "argument: scheme='flipout', group=…."
            )
        if isinstance(self.scheme, Flipout) and self.scheme.perturbation_dtype is not None:
            raise InvalidArgument(
                f"scheme={self.scheme} given: perturbations in FP8 serve one ΔŴ for all, and a population has one for "
                "each group. Leave perturbation_dtype out: scheme='flipout'."
            )
        self.std_at(0)

    @property
    def shared(self) -> int:
        """Draws that have one ΔŴ: members, or pairs of them."""
        return self.group // 2 if self.antithetic else self.group

    @property
    def draws(self) -> int:
        return self.population // 2 if self.antithetic else self.population

    def std_at(self, generation: int) -> float:
        std = self.std(generation) if callable(self.std) else self.std
        if not _is_number(std) or std <= 0:
            raise InvalidArgument(
                f"std={std!r} in generation {generation}: expected a finite number > 0. Without noise all members are "
                "the mean, and there is nothing to compare."
            )
        return float(std)

    def told(self) -> dict[str, Any]:
        """What JSON can hold of this; a function by its name alone."""
        return {
            **{name: getattr(self, name) for name in ("population", "group", "antithetic", "weight_decay", "seed")},
            "std": _name(self.std) if callable(self.std) else self.std,
            "scheme": repr(self.scheme),
            "shaping": _name(self.shaping),
        }


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
