"""The settings of a strategy. Two strategies with equal settings, model and fitness evolve identically."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from .._arguments import whole_number as whole_number
from ..errors import InvalidArgument
from ..schemes import Flipout, RankOne, Scheme
from ._masters import Rounding, check_rounding
from ._shaping import Shaping

PopulationScheme = Literal["flipout", "independent", "low_rank", "rank_one"]


@dataclass(frozen=True)
class Settings:
    """Checked arguments of a strategy."""

    population: int
    group: int
    std: float | Callable[[int], float]
    scheme: Scheme
    antithetic: bool
    shaping: Shaping
    weight_decay: float
    seed: int
    rounding: Rounding = "master"

    def __post_init__(self) -> None:
        for name, least in (("population", 1), ("group", 1), ("seed", None)):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least))
        if isinstance(self.scheme, RankOne):  # there is no ΔŴ to share, so a group is only a number of members
            if self.antithetic and self.population % 2:
                raise InvalidArgument(
                    f"population={self.population} with antithetic=True: a population consists of pairs. Use "
                    f"population={self.population + 1}."
                )
        else:
            self._check_groups()
        if not _is_number(self.weight_decay) or self.weight_decay < 0:
            raise InvalidArgument(f"weight_decay={self.weight_decay!r}: expected a finite number ≥ 0.")
        check_rounding(self.rounding)
        self._check_scheme()
        self.std_at(0)

    def _check_groups(self) -> None:
        if self.antithetic and self.group % 2:
            raise InvalidArgument(
                f"group={self.group} with antithetic=True: a group consists of pairs. Use group={self.group + 1}."
            )
        if self.population % self.group:
            below = self.population // self.group * self.group
            near = f"{below} or {below + self.group}" if below else f"{self.group}, or group={self.population}"
            raise InvalidArgument(
                f"population={self.population}, group={self.group}: {self.group} members share one ΔŴ, and a "
                f"population consists of whole groups. Use population={near}."
            )

    def _check_scheme(self) -> None:
        if not isinstance(self.scheme, Flipout):
            return
        if self.scheme.group not in (None, self.shared):
            raise InvalidArgument(
                f"scheme={self.scheme}, group={self.group}: the two group sizes differ. Give the group to the strategy "
                "alone: scheme='flipout', group=…."
            )
        if self.scheme.perturbation_dtype is not None:
            raise InvalidArgument(
                f"scheme={self.scheme}: FP8 perturbations need one ΔŴ for the whole batch, and a population has one "
                "for each group. Leave perturbation_dtype out: scheme='flipout'."
            )

    @property
    def shared(self) -> int:
        """Number of draws that share one ΔŴ: members, or antithetic pairs."""
        return max(self.group // 2, 1) if self.antithetic else self.group

    @property
    def draws(self) -> int:
        """Number of draws in a generation: members, or antithetic pairs."""
        return self.population // 2 if self.antithetic else self.population

    def std_at(self, generation: int) -> float:
        """Return σ of one generation."""
        std = self.std(generation) if callable(self.std) else self.std
        if not _is_number(std) or std <= 0:
            raise InvalidArgument(
                f"std={std!r} in generation {generation}: expected a finite number > 0. Without noise all members are "
                "equal, and there is nothing to compare."
            )
        return float(std)

    def description(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them: functions by their names."""
        return {
            **{name: getattr(self, name) for name in ("population", "group", "antithetic", "weight_decay", "seed")},
            "std": _name(self.std) if callable(self.std) else self.std,
            "scheme": repr(self.scheme),
            "shaping": _name(self.shaping),
            **({} if self.rounding == "master" else {"rounding": self.rounding}),
        }


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
