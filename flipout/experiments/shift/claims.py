"""Checks of what is expected of four methods on corrupted pictures."""

from collections.abc import Mapping
from typing import Any

from ..evidence.statistics import interval
from ..running.results import MUST_HOLD, REPORTED, Check, Number
from .corruptions import CORRUPTIONS, STRENGTHS

Condition = tuple[str, int]  # corruption and strength; strength 0 is the test set itself
Found = Mapping[str, Mapping[Condition, Any]]
METHODS = {"plain": "plain", "dropout": "MC dropout", "flipout": "mean field, flipout", "ensemble": "ensemble"}
CLEAN: Condition = ("none", 0)
CONDITIONS: tuple[Condition, ...] = (CLEAN, *((name, strength) for name in CORRUPTIONS for strength in STRENGTHS))
SCORES = {
    "accuracy": "accuracy",
    "nll": "negative log-likelihood",
    "ece": "expected calibration error",
    "rejection": "mean risk over all shares kept",
}
STRENGTH_FIGURE, REJECTION_FIGURE = "strength", "rejection"
_LOSS = 0.01  # accuracy on the test set that a posterior may cost


def piece(method: str, corruption: str, strength: int) -> str:
    return f"{method}.{corruption}.{strength}"


def evaluate(found: Found) -> list[Check]:
    """Return the checks."""
    checks = [_jensen(found), _as_accurate(found)]
    for score, name in SCORES.items():
        if score != "accuracy":
            checks += [_lower(found, method, score, name) for method in METHODS if method != "plain"]
    return checks


def over_corruptions(found: Found, method: str, score: str, strength: int) -> float:
    """Return the mean of a score over the corruptions at one strength; strength 0 is the test set."""
    if strength == 0:
        return found[method][CLEAN][score]
    return sum(found[method][name, strength][score] for name in CORRUPTIONS) / len(CORRUPTIONS)


def measured_numbers(found: Found) -> dict[str, Number]:
    numbers: dict[str, Number] = {}
    for score, name in SCORES.items():
        for method, title in METHODS.items():
            for strength in (0, *STRENGTHS):
                where = "test set" if strength == 0 else f"strength {strength}"
                numbers[f"{title}, {where}: {name}"] = round(over_corruptions(found, method, score, strength), 4)
    return numbers


def _jensen(found: Found) -> Check:
    """The logarithm is concave: averaged probabilities are no worse than the members on average."""
    gaps = [
        result["nll"] - sum(result["member_nll"]) / len(result["member_nll"]) for result in found["ensemble"].values()
    ]
    claim = (
        "The averaged probabilities of an ensemble have no higher negative log-likelihood than its members on average "
        "(largest difference over all corruptions, at most 0)"
    )
    worst = max(gaps)
    return Check("jensen", claim, MUST_HOLD, "largest difference", worst, None, worst <= 1e-6, STRENGTH_FIGURE)


def _as_accurate(found: Found) -> Check:
    lost = found["plain"][CLEAN]["accuracy"] - found["flipout"][CLEAN]["accuracy"]
    claim = "On the test set the posterior under flipout loses at most one point of accuracy (share of the pictures)"
    return Check("accuracy", claim, REPORTED, "lost accuracy", lost, None, lost <= _LOSS, STRENGTH_FIGURE)


def _lower(found: Found, method: str, score: str, name: str) -> Check:
    """Compare with the plain network: the mean over strengths, with its interval over the corruptions."""
    differences = [
        sum(found[method][corruption, s][score] - found["plain"][corruption, s][score] for s in STRENGTHS)
        / len(STRENGTHS)
        for corruption in CORRUPTIONS
    ]
    value, _, low, high = interval(differences)
    claim = f"{METHODS[method]}: on corrupted pictures the {name} is below the plain network's (difference)"
    figure = REJECTION_FIGURE if score == "rejection" else STRENGTH_FIGURE
    return Check(f"{score}/{method}", claim, REPORTED, f"difference of {score}", value, (low, high), high < 0, figure)
