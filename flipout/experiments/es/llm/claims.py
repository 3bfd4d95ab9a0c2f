"""What must hold of a population, and how the methods compare in equal time."""

from collections.abc import Mapping, Sequence

from ...evidence.statistics import interval
from ...running.names import slug
from ...running.results import MUST_HOLD, REPORTED, Check, Number
from .settings import TITLES, Method, TaskName
from .training import AccuracyCurve

FIGURE = "accuracy"
SHARE = 0.9  # of plain inference's speed
_EXACT = 1e-3  # of the largest logit, in single precision
_QUANTITY = "difference of held-out accuracies"
Table = Mapping[tuple[TaskName, Method], Sequence[AccuracyCurve]]  # a curve for each seed


def exact(difference: float) -> Check:
    """A member's logits are those of the plain model with its adapter."""
    claim = (
        "The logits of a member of a population are those of the plain model with the member's exported adapter, in "
        f"single precision (largest difference over the largest logit, at most {_EXACT:g})"
    )
    return Check("same-weights", claim, MUST_HOLD, "difference", difference, None, difference <= _EXACT)


def reported(table: Table, shares: Mapping[str, float]) -> list[Check]:
    """Gains, comparisons at equal time, and the speed of a forward pass."""
    checks = []
    for (task, method), curves in table.items():
        if method == "rank_one":
            value, _, low, high = interval([curve.gain for curve in curves])
            claim = f"{task}: training by rank-one flips raises the held-out accuracy (mean gain over the seeds)"
            checks.append(Check(f"gain/{task}", claim, REPORTED, _QUANTITY, value, (low, high), value > 0, FIGURE))
            continue
        pairs = zip(table[task, "rank_one"], curves, strict=True)
        value, _, low, high = interval([ours.at_the_end - other.at_the_end for ours, other in pairs])
        claim = (
            f"{task}: after the same time the held-out accuracy of rank-one flips is no lower than that of "
            f"{TITLES[method]} (mean difference over the seeds)"
        )
        name = slug(f"{task}-{method}")
        checks.append(Check(f"time/{name}", claim, REPORTED, _QUANTITY, value, (low, high), value >= 0, FIGURE))
    claim = f"A forward pass of a population under rank-one flips has {SHARE:g} of the speed of plain inference (share)"
    share = shares["rank_one"]
    return [*checks, Check("share", claim, REPORTED, "share of inference", share, None, share >= SHARE)]


def numbers(table: Table, shares: Mapping[str, float]) -> dict[str, Number]:
    measured: dict[str, Number] = {}
    for (task, method), curves in table.items():
        ends = ", ".join(f"{curve.at_the_end:.3f}" for curve in curves)
        measured[f"{task}, {TITLES[method]}: held-out accuracy at the end, for each seed"] = ends
        measured[f"{task}, {TITLES[method]}: steps"] = interval([curve.steps for curve in curves])[0]
        rates = [curve.rate for curve in curves if curve.rate is not None]
        if rates:
            measured[f"{task}, {TITLES[method]}: members × tokens per second"] = interval(rates)[0]
        if method == "rank_one":
            measured[f"{task}: held-out accuracy before training"] = curves[0].accuracy[0]
    for method, share in shares.items():
        measured[f"forward pass, {method}: share of plain inference"] = share
    return measured
