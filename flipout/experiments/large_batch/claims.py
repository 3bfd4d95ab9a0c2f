"""Checks of losses in large batches: what theory predicts, and what the paper observed."""

from collections.abc import Mapping, Sequence
from typing import get_args

from ..evidence.checks import ratio_check, within_spread
from ..evidence.curves import iteration_ratios
from ..evidence.statistics import geometric, interval
from ..running.names import slug
from ..running.results import REPORTED, Check, Number
from .curves import Curves, Loss

BAR = {"likelihood": 2.5, "total": 1.0}  # times fewer iterations
CLOCK = 1.5  # times faster, says the paper
NAMES = {"likelihood": "negative log-likelihood", "total": "total loss"}
FEWER, FASTER = "times fewer iterations", "times faster by the clock"
LOSS_FIGURE, ERROR_FIGURE = "loss", "error"


def evaluate(
    curves: Curves, fractions: Sequence[float], seconds: Mapping[str, float]
) -> tuple[list[Check], dict[str, Number], dict[str, Number]]:
    """Return the checks, our numbers, and the paper's."""
    checks: list[Check] = []
    numbers: dict[str, Number] = {}
    paper: dict[str, Number] = {}
    moments = list(dict.fromkeys(max(round(share * curves.iterations), 1) for share in fractions))
    price = seconds["flipout"] / seconds["shared"]
    for loss in get_args(Loss):
        for moment in moments:
            check = _fewer(curves, loss, moment)
            checks.append(check)
            where = f"{NAMES[loss]} of shared after {moment}"
            numbers[f"{where}: the level"] = curves.level(loss, moment)
            numbers[f"{where}: {FEWER}"] = "none" if check.value is None else check.value
            paper[f"{where}: {FEWER}"] = "about 3"
            if check.value is not None:
                numbers[f"{where}: {FASTER}"] = check.value / price
                paper[f"{where}: {FASTER}"] = CLOCK
    checks += [_faster(curves, moments[-1], price), _no_worse(curves)]
    if "local_reparam" in curves.schemes:
        checks += [_within(curves, loss) for loss in get_args(Loss)]
        for moment in moments:
            flipout, local = curves.of("flipout"), curves.of("local_reparam")
            ratio, *_ = geometric(iteration_ratios(flipout, local, "total", curves.level("total", moment)))
            where = f"{NAMES['total']} of shared after {moment}"
            numbers[f"{where}: iterations of flipout / local_reparam"] = ratio
    for scheme in curves.schemes:
        numbers[f"{scheme}: milliseconds an iteration"] = 1000 * seconds[scheme]
        for column, name in {**NAMES, "train_error": "training error", "test_error": "test error"}.items():
            value, error, *_ = interval(curves.last(scheme, column))
            numbers[f"{scheme}: {name} at the end"] = f"{value:.4f} ± {error:.4f}"
    numbers["flipout / shared: time of an iteration"] = price
    paper["flipout / shared: time of an iteration"] = "about 2"
    return checks, numbers, paper


def _gain(curves: Curves, loss: Loss, moment: int) -> tuple[float, float, float]:
    """Return how many times fewer iterations flipout needs for the loss that shared has at a moment."""
    return geometric(iteration_ratios(curves.of("shared"), curves.of("flipout"), loss, curves.level(loss, moment)))


def _fewer(curves: Curves, loss: Loss, moment: int) -> Check:
    ratio = _gain(curves, loss, moment)
    bar = BAR[loss]
    times = f"{bar:g} times fewer" if bar > 1 else "fewer"
    claim = f"Flipout needs {times} iterations for the {NAMES[loss]} that shared has after {moment} (ratio)"
    name = slug(f"fewer-iterations {NAMES[loss]} {moment}")
    holds = ratio[0] >= bar if bar > 1 else ratio[1] > 1
    return ratio_check(name, claim, FEWER, ratio, holds, LOSS_FIGURE)


def _faster(curves: Curves, moment: int, price: float) -> Check:
    value, low, high = (ratio / price for ratio in _gain(curves, "likelihood", moment))
    claim = (
        f"By the clock, flipout is {CLOCK:g} times faster at the {NAMES['likelihood']} that shared has after {moment} "
        "(ratio)"
    )
    return ratio_check("by-the-clock", claim, FASTER, (value, low, high), value >= CLOCK, None)


def _no_worse(curves: Curves) -> Check:
    errors = (curves.last(scheme, "test_error") for scheme in ("flipout", "shared"))
    value, _, low, high = interval([100 * (above - below) for above, below in zip(*errors, strict=True)])
    quantity = "difference in points"
    claim = f"At the end the test error of flipout is not above the test error of shared ({quantity})"
    return Check("end-test-error", claim, REPORTED, quantity, value, (low, high), low <= 0, ERROR_FIGURE)


def _within(curves: Curves, loss: Loss) -> Check:
    return within_spread(
        slug(f"end {NAMES[loss]}"),
        f"At the end the {NAMES[loss]} of flipout",
        "local reparameterisation",
        curves.last("flipout", loss),
        curves.last("local_reparam", loss),
        LOSS_FIGURE,
    )
