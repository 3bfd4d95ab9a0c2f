"""Compare candidates by their curves of the held-out error, and say which are chosen."""

import math
from collections.abc import Sequence

from ...evidence.curves import iteration_ratios
from ...evidence.statistics import geometric
from ...running.results import MUST_HOLD, REPORTED, Check, Number
from ..claims import COMPARABLE
from ..curves import EsCurve, EsCurves

FIGURE = "scores"
_LEAST = 1e-4  # error: no curve is judged by what it does below


def score(curves: Sequence[EsCurve]) -> float:
    """Return the geometric mean of the held-out error over the measurements of a curve, and over seeds.

    Measurements grow further apart by a tenth, so a candidate is good that is low early and late. `EsCurve.test_error`
    is the error of the held-out examples here. A curve that is not finite has the score infinity.
    """
    logarithms = [
        math.log(max(error, _LEAST)) if math.isfinite(loss) else math.inf
        for curve in curves
        for loss, error in zip(curve.loss, curve.test_error, strict=True)
    ]
    return math.exp(math.fsum(logarithms) / len(logarithms))


def best(curves: EsCurves, names: Sequence[str]) -> str:
    """Return the name with the lowest score."""
    return min(names, key=lambda name: score(curves.of(name)))


def found(curves: EsCurves) -> tuple[dict[str, Number], tuple[Check, ...]]:
    """Return the scores, what was chosen, and how many updates FlipES then needs."""
    numbers: dict[str, Number] = {}
    chosen = {}
    for method in ("FlipES", "backprop"):
        names = [name for name in curves.names if name.startswith(method)]
        chosen[method] = best(curves, names)
        numbers[f"{method}: chosen"] = chosen[method]
        for name in names:
            numbers[f"{name}: score"] = score(curves.of(name))
            last = curves.last(name, "test_error")
            numbers[f"{name}: held-out error at the end"] = math.fsum(last) / len(last)
    flips, backprop = (curves.of(chosen[method]) for method in ("FlipES", "backprop"))
    level = max(min(curve.test_error) for curve in [*flips, *backprop])
    ratios = iteration_ratios(flips, backprop, "test_error", level)
    value, *interval = geometric(ratios) if len(ratios) > 1 else (ratios[0],)
    check = Check(
        "updates",
        f"The chosen FlipES needs at most {COMPARABLE:g} times the updates of the chosen backprop for the held-out "
        f"error that all seeds of both reach, {level:.2%} (ratio)",
        REPORTED,
        "ratio of updates",
        value,
        (interval[0], interval[1]) if interval else None,
        value <= COMPARABLE,
        FIGURE,
        "" if interval else "one seed, so no interval",
    )
    return numbers, (_same_start(curves), check)


def _same_start(curves: EsCurves) -> Check:
    """All candidates begin as the same network: seed by seed, their first measurement is one number."""
    starts: dict[int, set[float]] = {}
    for curve in curves.curves:
        starts.setdefault(curve.seed, set()).add(curve.test_error[0])
    most = max(max(errors) - min(errors) for errors in starts.values())
    claim = "All candidates begin with the same held-out error, seed by seed (largest difference)"
    return Check("same-start", claim, MUST_HOLD, "difference in error", most, None, most == 0)
