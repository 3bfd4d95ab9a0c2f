"""What the theory says about losses in large batches, and what the paper saw of them, as checks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, get_args

from flipout._student import f_quantile, f_tail, interval, t_quantile
from flipout.variance import compare

from .large_batch_curves import Curves, Loss
from .results import MUST_HOLD, REPORTED, Check, Number
from .variance_claims import LEVEL

BAR = {"likelihood": 2.5, "total": 1.0}  # times fewer iterations
CLOCK = 1.5  # times faster, says the paper
NAMES = {"likelihood": "negative log-likelihood", "total": "total loss"}


@dataclass(frozen=True)
class Mean:
    value: float
    error: float
    freedom: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Mean":
        value, error, *_ = interval(values)
        return cls(value, error, len(values) - 1)


def theory(drawn: Mapping[str, Sequence[float]], where: str = "At one posterior") -> list[Check]:
    """The loss of random batches at one posterior: one expectation, and no more variance under flipout."""
    pairs = list(combinations(drawn, 2))
    found = {pair: compare(*(Mean.of(drawn[scheme]) for scheme in pair)) for pair in pairs}
    worst = min(found.values(), key=lambda one: one.p)
    half = t_quantile(1 - LEVEL / 2 / len(pairs), worst.freedom) * worst.error
    shared, own = (Mean.of(drawn[scheme]) for scheme in ("shared", "flipout"))
    ratio = (own.error / shared.error) ** 2
    *others, last = drawn
    return [
        Check(
            f"{where}, {', '.join(others)} and {last} expect the same loss (difference that speaks most against it)",
            MUST_HOLD,
            worst.difference,
            (worst.difference - half, worst.difference + half),
            worst.p * len(pairs) >= LEVEL,
        ),
        Check(
            f"{where}, a batch's loss varies no more under flipout than under shared (ratio of variances, at most 1 "
            "within chance)",
            MUST_HOLD,
            ratio,
            (ratio / f_quantile(1 - LEVEL, own.freedom, shared.freedom), None),
            f_tail(ratio, own.freedom, shared.freedom) >= LEVEL,
        ),
    ]


def found(
    curves: Curves, fractions: Sequence[float], seconds: Mapping[str, float]
) -> tuple[list[Check], dict[str, Number], dict[str, Number]]:
    """Checks, our numbers, and the paper's."""
    checks: list[Check] = []
    numbers: dict[str, Number] = {}
    moments = [max(round(share * curves.iterations), 1) for share in fractions]
    price = seconds["flipout"] / seconds["shared"]
    for loss in get_args(Loss):
        for moment in moments:
            made = _fewer(curves, loss, moment)
            checks.append(made)
            where = f"{NAMES[loss]} of shared after {moment}"
            numbers[f"{where}: the level"] = curves.level(loss, moment)
            numbers[f"{where}: times fewer iterations"] = "none" if made.value is None else made.value
            if made.value is not None:
                numbers[f"{where}: times faster by the clock"] = made.value / price
    checks += [_faster(curves, moments[-1], price), _no_worse(curves)]
    if "local_reparam" in curves.schemes:
        checks += [_within(curves, loss) for loss in get_args(Loss)]
        for moment in moments:
            own, other = curves.of("flipout"), curves.of("local_reparam")
            ratio, *_ = geometric(ratios(own, other, "total", curves.level("total", moment)))
            where = f"{NAMES['total']} of shared after {moment}"
            numbers[f"{where}: iterations of flipout / local_reparam"] = ratio
    for scheme in curves.schemes:
        numbers[f"{scheme}: milliseconds an iteration"] = 1000 * seconds[scheme]
        for column, name in {**NAMES, "train_error": "training error", "test_error": "test error"}.items():
            value, error, *_ = interval(curves.last(scheme, column))
            numbers[f"{scheme}: {name} at the end"] = f"{value:.4f} ± {error:.4f}"
    numbers["flipout / shared: time of an iteration"] = price
    said = {"times fewer iterations": "about 3", "times faster by the clock": CLOCK}
    paper: dict[str, Number] = {name: said[end] for name in numbers for end in said if name.endswith(end)}
    return checks, numbers, {**paper, "flipout / shared: time of an iteration": "about 2"}


def ratios(above: Sequence[Any], below: Sequence[Any], column: str, level: float) -> list[float]:
    """Iterations to a level, curve over curve, seed by seed; infinite where the one below begins there."""
    times = ((one.reached(column, level), two.reached(column, level)) for one, two in zip(above, below, strict=True))
    return [one / two if two else math.inf for one, two in times]


def geometric(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean, and its 90 % interval over the seeds; NaN where some seed has no ratio."""
    if not all(0 < ratio < math.inf for ratio in ratios):
        return math.nan, math.nan, math.nan
    value, _, low, high = interval([math.log(ratio) for ratio in ratios])
    return math.exp(value), math.exp(low), math.exp(high)


def _gain(curves: Curves, loss: Loss, moment: int) -> tuple[float, float, float]:
    """Iterations of shared over those of flipout, for what shared has at a moment."""
    return geometric(ratios(curves.of("shared"), curves.of("flipout"), loss, curves.level(loss, moment)))


def _fewer(curves: Curves, loss: Loss, moment: int) -> Check:
    value, low, high = _gain(curves, loss, moment)
    bar = BAR[loss]
    times = f"{bar:g} times fewer" if bar > 1 else "fewer"
    claim = f"Flipout needs {times} iterations for the {NAMES[loss]} that shared has after {moment} (ratio)"
    return ratio_check(claim, (value, low, high), value >= bar if bar > 1 else low > 1)


def _faster(curves: Curves, moment: int, price: float) -> Check:
    value, low, high = (ratio / price for ratio in _gain(curves, "likelihood", moment))
    claim = f"By the clock, flipout gets there {CLOCK:g} times faster: {NAMES['likelihood']}, after {moment} (ratio)"
    return ratio_check(claim, (value, low, high), value >= CLOCK)


def ratio_check(claim: str, found: tuple[float, float, float], holds: bool) -> Check:
    value, low, high = found
    if math.isnan(value):
        return Check(f"{claim}; never reached", REPORTED, None, None, False)
    return Check(claim, REPORTED, value, (low, high), holds)


def _no_worse(curves: Curves) -> Check:
    errors = (curves.last(scheme, "test_error") for scheme in ("flipout", "shared"))
    value, _, low, high = interval([100 * (own - other) for own, other in zip(*errors, strict=True)])
    claim = "At the end the test error of flipout is not above that of shared (difference in points)"
    return Check(claim, REPORTED, value, (low, high), low <= 0)


def _within(curves: Curves, loss: Loss) -> Check:
    what = f"At the end the {NAMES[loss]} of flipout", "local reparameterisation"
    return within(*what, curves.last("flipout", loss), curves.last("local_reparam", loss))


def within(what: str, whose: str, own: Sequence[float], others: Sequence[float]) -> Check:
    """The mean of `own` is at most two standard deviations of the `others` from theirs."""
    mean, error, *_ = interval(others)
    spread = error * math.sqrt(len(others)) or math.inf
    value, _, low, high = interval([(one - mean) / spread for one in own])
    claim = f"{what} is within the spread of {whose}'s seeds (difference in their standard deviations, at most 2)"
    return Check(claim, REPORTED, value, (low, high), abs(value) <= 2)
