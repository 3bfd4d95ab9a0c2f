"""Returns of policies as they learn, and what is claimed of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...evidence.checks import within_spread
from ...evidence.statistics import interval
from ...running.names import slug
from ...running.results import REPORTED, Check, Number

FIGURE = "returns"


@dataclass(frozen=True)
class Returns:
    """One policy: the mean return of the population in each generation, and the final returns at the mean weights."""

    method: str
    seed: int
    iterations: list[int]
    mean: list[float]
    final: list[float]
    seconds: float

    @property
    def at_the_end(self) -> float:
        return sum(self.final) / len(self.final)

    @property
    def over_all(self) -> float:
        return sum(self.mean) / len(self.mean)


def learned(curves: Sequence[Returns], method: str, bar: float) -> Check:
    """Every seed reaches the bar. The value is the lowest mean return, with the interval over its episodes."""
    worst = min(of_method(curves, method), key=lambda curve: curve.at_the_end)
    value, _, low, high = interval(worst.final)
    claim = f"{method}: at the end the mean return of {len(worst.final)} episodes is at least {bar:g} for every seed"
    name, quantity = slug(f"learned {method}"), "lowest mean return"
    return Check(name, f"{claim} (the lowest)", REPORTED, quantity, value, (low, high), value >= bar, FIGURE)


def no_loss(curves: Sequence[Returns], method: str = "FlipES") -> list[Check]:
    """A method learns as well as IdealES."""
    flip, ideal = of_method(curves, method), of_method(curves, "IdealES")
    suffix = "" if method == "FlipES" else f" {method}"
    return [
        within_spread(
            slug(f"mean-return{suffix}"),
            f"The mean return of {method} over all generations",
            "IdealES",
            [curve.over_all for curve in flip],
            [curve.over_all for curve in ideal],
            FIGURE,
        ),
        within_spread(
            slug(f"end-return{suffix}"),
            f"At the end the mean return of {method}",
            "IdealES",
            [curve.at_the_end for curve in flip],
            [curve.at_the_end for curve in ideal],
            FIGURE,
        ),
    ]


def at_the_end(method: str) -> str:
    """Return the name of the number that has the final return of each seed."""
    return f"{method}: mean return at the end, for each seed"


def numbers(curves: Sequence[Returns]) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for method in dict.fromkeys(curve.method for curve in curves):
        policies = of_method(curves, method)
        found[at_the_end(method)] = ", ".join(f"{curve.at_the_end:.1f}" for curve in policies)
        found[f"{method}: mean return over all generations"] = interval([curve.over_all for curve in policies])[0]
        found[f"{method}: seconds for a seed"] = interval([curve.seconds for curve in policies])[0]
    return found


def of_method(curves: Sequence[Returns], method: str) -> list[Returns]:
    return [curve for curve in curves if curve.method == method]
