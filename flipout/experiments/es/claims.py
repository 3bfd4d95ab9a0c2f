"""What theory says of the estimates of evolution strategies, and what the paper saw of their curves, as checks."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

from flipout.variance import compare

from ..evidence.checks import ratio_check, within_spread
from ..evidence.curves import iteration_ratios
from ..evidence.statistics import LEVEL, Mean, geometric, interval, t_quantile
from ..running.results import MUST_HOLD, REPORTED, Check, Number
from .curves import EsCurves

Drawn = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]  # method → along, scatter → Parameter → estimates
COMPARABLE = 2.0  # times the updates
PRICE = "about 60"  # of an update by FlipES, in updates by backpropagation, says the paper
LESS = 1.1  # of the variance: what counts as none lost
NAMES = {"loss": "training loss", "test_error": "test error"}


def one_expectation(drawn: Drawn, what: str = "") -> Check:
    """Each Parameter's estimates along one direction, for each pair of methods: Welch's test, Bonferroni over all."""
    pairs = [(a, b, name) for a, b in combinations(drawn, 2) for name in drawn[a]["along"]]
    found = [compare(*(Mean.of(drawn[method]["along"][name]) for method in (a, b))) for a, b, name in pairs]
    worst = min(found, key=lambda one: one.p)
    half = t_quantile(1 - LEVEL / 2 / len(found), worst.freedom) * worst.error
    claim = (
        f"{', '.join(drawn)} estimate the same gradient of every Parameter{what} (difference that speaks most against "
        "it)"
    )
    bounds = worst.difference - half, worst.difference + half
    return Check(claim, MUST_HOLD, worst.difference, bounds, worst.p * len(found) >= LEVEL)


def variances(drawn: Drawn, pairs: int, weights: int) -> tuple[list[Check], dict[str, Number]]:
    """Sharing ΔŴ between `pairs` can only add variance (γ ≥ 0); how much, beside what a linear fitness would have."""
    own, ideal = (_total(drawn[method]["scatter"]) for method in ("FlipES", "IdealES"))
    apart, ratio = compare(ideal, own), own.value / ideal.value
    error = math.hypot(own.error / own.value, ideal.error / ideal.value)
    half = {level: math.exp(t_quantile(1 - level, apart.freedom) * error) for level in (LEVEL, 0.05)}
    checks = [
        Check(
            "The estimate of FlipES varies no less than that of IdealES (ratio of variances)",
            MUST_HOLD,
            ratio,
            (None, ratio * half[LEVEL]),
            apart.p_greater >= LEVEL,
        ),
        Check(
            f"The estimate of FlipES has at most {LESS:g} times the variance of IdealES (ratio)",
            REPORTED,
            ratio,
            (ratio / half[0.05], ratio * half[0.05]),
            ratio <= LESS,
        ),
    ]
    numbers: dict[str, Number] = {"variance of FlipES / IdealES": ratio}
    numbers["variance of FlipES / IdealES, were fitness linear"] = 1 + 2 * (pairs - 1) / (weights + 1)
    for name, scatter in drawn["FlipES"]["scatter"].items():
        numbers[f"variance of FlipES / IdealES: {name}"] = (
            Mean.of(scatter).value / Mean.of(drawn["IdealES"]["scatter"][name]).value
        )
    return checks, numbers


def no_loss(curves: EsCurves, own: str, ideal: str) -> list[Check]:
    checks = []
    for column, name in NAMES.items():
        of = curves.last(own, column), curves.last(ideal, column)
        checks.append(within_spread(f"At the end the {name} of {own}", ideal, *of))
        means = ([_mean(getattr(curve, column)) for curve in curves.of(one)] for one in (own, ideal))
        checks.append(within_spread(f"The mean over the looks of the {name} of {own}", ideal, *means))
    level = max(_level(curves, name, "loss") for name in (own, ideal))
    claim = f"{own} needs no more updates than {ideal} for the training loss that all seeds get to (ratio)"
    found = geometric(iteration_ratios(curves.of(own), curves.of(ideal), "loss", level))
    return [*checks, ratio_check(claim, found, found[1] <= 1)]


def comparable(curves: EsCurves, own: str) -> Check:
    level = max(_level(curves, name, "test_error") for name in (own, "backprop"))
    found = geometric(iteration_ratios(curves.of(own), curves.of("backprop"), "test_error", level))
    claim = (
        f"{own} needs at most {COMPARABLE:g} times the updates of backprop for the test error that all seeds of both "
        f"get to, {level:.2%} (ratio)"
    )
    return ratio_check(claim, found, found[0] <= COMPARABLE)


def lower(curves: EsCurves, own: str, other: str) -> Check:
    pairs = zip(curves.last(own, "test_error"), curves.last(other, "test_error"), strict=True)
    value, _, low, high = interval([100 * (one - two) for one, two in pairs])
    claim = f"At the end the test error of {own} is below that of {other} (difference in points)"
    return Check(claim, REPORTED, value, (low, high), value < 0)


def numbers(curves: EsCurves) -> dict[str, Number]:
    made: dict[str, Number] = {}
    for name in curves.names:
        for column, shown in {**NAMES, "train_error": "training error"}.items():
            value, error, *_ = interval(curves.last(name, column))
            made[f"{name}: {shown} at the end"] = f"{value:.4f} ± {error:.4f}"
        made[f"{name}: milliseconds an update"] = 1000 * seconds(curves, name)
    return made


def seconds(curves: EsCurves, name: str) -> float:
    """Of an update: the least of the seeds, since whatever else a machine does only adds."""
    return min(curve.seconds for curve in curves.of(name))


def _level(curves: EsCurves, name: str, column: str) -> float:
    """What all seeds have reached."""
    return max(min(getattr(curve, column)) for curve in curves.of(name))


def _total(scatter: Mapping[str, Sequence[float]]) -> Mean:
    return Mean.of([sum(one) for one in zip(*scatter.values(), strict=True)])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
