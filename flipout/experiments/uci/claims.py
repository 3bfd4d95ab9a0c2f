"""Checks of what is expected of seven methods on nine regressions."""

import math
from collections.abc import Mapping
from typing import Any

from ..evidence.checks import ratio_check, same_loss
from ..evidence.curves import reached
from ..evidence.statistics import geometric, interval
from ..running.results import REPORTED, Check, Number
from .networks import METHODS
from .published import PUBLISHED

Found = Mapping[str, Mapping[str, Any]]  # set → method → its piece: scores of each split, curve, seconds
FIGURES = {"log_likelihood": "log-likelihood", "rmse": "rmse", "coverage": "coverage", "bound": "bound"}
NAMES = {"rmse": "RMSE", "log_likelihood": "log-likelihood", "crps": "CRPS", "coverage": "coverage of 90 % intervals"}
BAR = (0.85, 0.95)  # average coverage of 90 % intervals
ENOUGH = 2 / 3  # of the sets: 6 of 9
MOMENTS = {"a quarter": 0.25, "half": 0.5, "all": 1.0}  # of the steps


def evaluate(found: Found) -> list[Check]:
    """Return the checks of the methods that were run."""
    first = next(iter(found.values()))
    checks = same_loss(first["flipout"]["losses"]) if "flipout" in first else []
    checks += [_covers(found, method) for method in first]
    if any(name in PUBLISHED for name in found):
        checks += [_not_worse(found, method) for method in first]
    if {"shared", "flipout"} <= first.keys():
        checks += [_fewer_steps(found, name, share) for name, share in MOMENTS.items()]
    return checks


def measured_numbers(found: Found) -> dict[str, Number]:
    numbers: dict[str, Number] = {}
    for score, title in NAMES.items():
        for name, methods in found.items():
            for method, piece in methods.items():
                numbers[f"{name}, {METHODS[method].title}: {title}"] = _shown(*interval(piece[score])[:2])
    for method in next(iter(found.values())):
        seconds = sum(methods[method]["seconds"] for methods in found.values())
        numbers[f"{METHODS[method].title}: seconds, all sets, without the search"] = round(seconds, 1)
    return numbers


def paper_numbers(found: Found) -> dict[str, Number]:
    """Return MC dropout as published, under the keys of ours."""
    numbers: dict[str, Number] = {}
    for name in found:
        if name in PUBLISHED and "dropout" in found[name]:
            for title, (value, error) in zip(("RMSE", "log-likelihood"), PUBLISHED[name], strict=True):
                numbers[f"{name}, {METHODS['dropout'].title}: {title}"] = _shown(value, error)
    return numbers


def not_worse(found: Found, method: str) -> list[str]:
    """Return the sets whose mean log-likelihood is at least the published one of MC dropout."""
    means = {name: interval(found[name][method]["log_likelihood"])[0] for name in found if name in PUBLISHED}
    return [name for name, mean in means.items() if mean >= PUBLISHED[name][1][0]]


def _covers(found: Found, method: str) -> Check:
    value, _, low, high = interval([interval(methods[method]["coverage"])[0] for methods in found.values()])
    claim = f"{METHODS[method].title}: 90 % intervals hold between 85 and 95 % of the test targets (mean over sets)"
    holds = BAR[0] <= value <= BAR[1]
    return Check(f"coverage/{method}", claim, REPORTED, "mean coverage", value, (low, high), holds, FIGURES["coverage"])


def _not_worse(found: Found, method: str) -> Check:
    compared = [name for name in found if name in PUBLISHED]
    better = not_worse(found, method)
    claim = (
        f"{METHODS[method].title}: the log-likelihood is not below MC dropout as published in at least "
        f"{math.ceil(ENOUGH * len(compared))} of {len(compared)} sets (number of sets)"
    )
    holds = len(better) >= ENOUGH * len(compared)
    figure = FIGURES["log_likelihood"]
    return Check(f"published/{method}", claim, REPORTED, "number of sets", float(len(better)), None, holds, figure)


def _fewer_steps(found: Found, title: str, share: float) -> Check:
    """Compare the steps to the bound that shared has after a share of its own, as a mean over the sets."""
    ratios = []
    for methods in found.values():
        shared, flipped = methods["shared"], methods["flipout"]
        last = share * shared["steps"][-1]
        level = min(bound for step, bound in zip(shared["steps"], shared["bound"], strict=True) if step <= last)
        times = [reached(curve["steps"], curve["bound"], level) for curve in (shared, flipped)]
        ratios.append(times[0] / times[1] if times[1] else math.inf)
    ratio = geometric(ratios)
    claim = (
        f"Flipout needs fewer steps for the bound that shared has after {title} of its steps (ratio, mean over sets)"
    )
    name = f"fewer-steps/{title.replace(' ', '-')}"
    return ratio_check(name, claim, "times fewer steps", ratio, ratio[1] > 1, FIGURES["bound"])


def _shown(value: float, error: float | None) -> str:
    """Show a number with its error, and three digits of the smaller of 1 and the number."""
    digits = 3 if abs(value) >= 0.1 else 5
    return f"{value:.{digits}f}" if error is None else f"{value:.{digits}f} ± {error:.{digits}f}"
