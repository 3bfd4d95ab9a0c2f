"""Checks of evolution strategies: what theory predicts for their estimates, and what the paper observed in training."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

from flipout.variance import compare

from ..evidence.checks import ratio_check, within_spread
from ..evidence.curves import iteration_ratios
from ..evidence.statistics import LEVEL, Mean, geometric, interval, t_quantile
from ..running.names import slug
from ..running.results import MUST_HOLD, REPORTED, Check, Number
from .curves import EsCurves

Estimates = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]  # method → along or scatter → Parameter → values
COMPARABLE = 2.0  # times the updates
PRICE = "about 60"  # of an update by FlipES, in updates by backpropagation, says the paper
NO_LOSS = 1.1  # ratio of variances up to which nothing counts as lost
FIGURE = "updates"
POINTS = "difference in points"
NAMES = {"loss": "training loss", "test_error": "test error"}


def same_gradient(estimates: Estimates, subject: str = "", case: str = "") -> Check:
    """Compare the estimates of each pair of methods along one direction: Welch's test, Bonferroni over all.

    Args:
        estimates: Estimates of the gradient by each method.
        subject: What has the Parameters, for the claim: " of the policy".
        case: Which of several comparisons of a run this is.
    """
    pairs = [(a, b, name) for a, b in combinations(estimates, 2) for name in estimates[a]["along"]]
    found = [compare(*(Mean.of(estimates[method]["along"][name]) for method in (a, b))) for a, b, name in pairs]
    worst = min(found, key=lambda comparison: comparison.p)
    half = t_quantile(1 - LEVEL / 2 / len(found), worst.freedom) * worst.error
    *others, last = estimates
    claim = f"{', '.join(others)} and {last} estimate the same gradient of every Parameter{subject}"
    return Check(
        slug(f"same-gradient {case}"),
        f"{claim}{f': {case}' if case else ''} (largest difference)",
        MUST_HOLD,
        "largest difference",
        worst.difference,
        (worst.difference - half, worst.difference + half),
        worst.p * len(found) >= LEVEL,
    )


def variances(estimates: Estimates, pairs: int, weights: int) -> tuple[list[Check], dict[str, Number]]:
    """Compare the variances of FlipES and IdealES.

    Sharing ΔŴ between `pairs` can only add variance (γ ≥ 0). The numbers say how much, beside what it would be for a
    fitness that is linear in `weights` weights.
    """
    flip, ideal = (_total(estimates[method]["scatter"]) for method in ("FlipES", "IdealES"))
    comparison, ratio = compare(ideal, flip), flip.value / ideal.value
    error = math.hypot(flip.error / flip.value, ideal.error / ideal.value)
    half = {level: math.exp(t_quantile(1 - level, comparison.freedom) * error) for level in (LEVEL, 0.05)}
    checks = [
        Check(
            "variance-not-less",
            "The estimate of FlipES varies no less than the estimate of IdealES (ratio of variances)",
            MUST_HOLD,
            "ratio of variances",
            ratio,
            (None, ratio * half[LEVEL]),
            comparison.p_greater >= LEVEL,
        ),
        Check(
            "variance-at-most",
            f"The estimate of FlipES has at most {NO_LOSS:g} times the variance of IdealES (ratio)",
            REPORTED,
            "ratio of variances",
            ratio,
            (ratio / half[0.05], ratio * half[0.05]),
            ratio <= NO_LOSS,
        ),
    ]
    numbers: dict[str, Number] = {"variance of FlipES / IdealES": ratio}
    numbers["variance of FlipES / IdealES, were fitness linear"] = 1 + 2 * (pairs - 1) / (weights + 1)
    for name, scatter in estimates["FlipES"]["scatter"].items():
        numbers[f"variance of FlipES / IdealES: {name}"] = (
            Mean.of(scatter).value / Mean.of(estimates["IdealES"]["scatter"][name]).value
        )
    return checks, numbers


def no_loss(curves: EsCurves, flip: str, ideal: str) -> list[Check]:
    """FlipES does as well as IdealES, update by update."""
    checks = []
    for column, name in NAMES.items():
        last, ideal_last = curves.last(flip, column), curves.last(ideal, column)
        mean, ideal_mean = ([_mean(getattr(curve, column)) for curve in curves.of(method)] for method in (flip, ideal))
        named, over_all = slug(f"{name} {flip}"), f"The mean {name} of {flip} over all measurements"
        checks += [
            within_spread(f"end-{named}", f"At the end the {name} of {flip}", ideal, last, ideal_last, FIGURE),
            within_spread(f"mean-{named}", over_all, ideal, mean, ideal_mean, FIGURE),
        ]
    level = max(_level(curves, name, "loss") for name in (flip, ideal))
    claim = f"{flip} needs no more updates than {ideal} for the training loss that all seeds reach (ratio)"
    ratio = geometric(iteration_ratios(curves.of(flip), curves.of(ideal), "loss", level))
    return [*checks, _updates(flip, claim, ratio, ratio[1] <= 1)]


def comparable(curves: EsCurves, flip: str) -> Check:
    """FlipES needs about as many updates as backpropagation."""
    level = max(_level(curves, name, "test_error") for name in (flip, "backprop"))
    ratio = geometric(iteration_ratios(curves.of(flip), curves.of("backprop"), "test_error", level))
    claim = (
        f"{flip} needs at most {COMPARABLE:g} times the updates of backprop for the test error that all seeds of both "
        f"reach, {level:.2%} (ratio)"
    )
    return _updates(flip, claim, ratio, ratio[0] <= COMPARABLE)


def lower(curves: EsCurves, first: str, second: str) -> Check:
    """The test error of the first is lower at the end."""
    value, bounds = _difference(curves, first, second)
    claim = f"At the end the test error of {first} is below the test error of {second} ({POINTS})"
    return Check(slug(f"lower {first} {second}"), claim, REPORTED, POINTS, value, bounds, value < 0, FIGURE)


def near(curves: EsCurves, first: str, second: str, most: float) -> Check:
    """The test error of the first is at most that many points higher at the end."""
    value, bounds = _difference(curves, first, second)
    claim = f"At the end the test error of {first} is at most {most:g} points above the test error of {second}"
    return Check(slug(f"near {first}"), claim, REPORTED, POINTS, value, bounds, value <= most, FIGURE)


def numbers(curves: EsCurves) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for name in curves.names:
        for column, shown in {**NAMES, "train_error": "training error"}.items():
            value, error, *_ = interval(curves.last(name, column))
            found[f"{name}: {shown} at the end"] = f"{value:.4f} ± {error:.4f}"
        found[f"{name}: milliseconds an update"] = 1000 * seconds(curves, name)
    return found


def seconds(curves: EsCurves, name: str) -> float:
    """Return the time of an update: the least of the seeds, since other work on the machine only adds to it."""
    return min(curve.seconds for curve in curves.of(name))


def _updates(flip: str, claim: str, ratio: tuple[float, float, float], holds: bool) -> Check:
    return ratio_check(slug(f"updates {flip}"), claim, "ratio of updates", ratio, holds, FIGURE)


def _difference(curves: EsCurves, first: str, second: str) -> tuple[float, tuple[float, float]]:
    """Return the difference of test errors at the end, in points, and its interval."""
    pairs = zip(curves.last(first, "test_error"), curves.last(second, "test_error"), strict=True)
    value, _, low, high = interval([100 * (above - below) for above, below in pairs])
    return value, (low, high)


def _level(curves: EsCurves, name: str, column: str) -> float:
    """Return the level that all seeds have reached."""
    return max(min(getattr(curve, column)) for curve in curves.of(name))


def _total(scatter: Mapping[str, Sequence[float]]) -> Mean:
    """Return the mean of the variances summed over all Parameters."""
    return Mean.of([sum(values) for values in zip(*scatter.values(), strict=True)])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
