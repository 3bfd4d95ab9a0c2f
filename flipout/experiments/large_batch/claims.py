"""What the theory says about losses in large batches, and what the paper saw of them, as checks."""

from collections.abc import Mapping, Sequence
from typing import get_args

from ..evidence.checks import ratio_check, within_spread
from ..evidence.curves import iteration_ratios
from ..evidence.statistics import geometric, interval
from ..running.results import REPORTED, Check, Number
from .curves import Curves, Loss

BAR = {"likelihood": 2.5, "total": 1.0}  # times fewer iterations
CLOCK = 1.5  # times faster, says the paper
NAMES = {"likelihood": "negative log-likelihood", "total": "total loss"}


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
            ratio, *_ = geometric(iteration_ratios(own, other, "total", curves.level("total", moment)))
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


def _gain(curves: Curves, loss: Loss, moment: int) -> tuple[float, float, float]:
    """Iterations of shared over those of flipout, for what shared has at a moment."""
    return geometric(iteration_ratios(curves.of("shared"), curves.of("flipout"), loss, curves.level(loss, moment)))


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


def _no_worse(curves: Curves) -> Check:
    errors = (curves.last(scheme, "test_error") for scheme in ("flipout", "shared"))
    value, _, low, high = interval([100 * (own - other) for own, other in zip(*errors, strict=True)])
    claim = "At the end the test error of flipout is not above that of shared (difference in points)"
    return Check(claim, REPORTED, value, (low, high), low <= 0)


def _within(curves: Curves, loss: Loss) -> Check:
    what = f"At the end the {NAMES[loss]} of flipout", "local reparameterisation"
    return within_spread(*what, curves.last("flipout", loss), curves.last("local_reparam", loss))
