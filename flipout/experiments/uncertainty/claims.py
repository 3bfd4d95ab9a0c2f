"""What uncertainties are good for, as checks: AUROC with its interval."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from flipout import bayes
from flipout.variance import Term

from ..evidence.statistics import LEVEL, interval, t_quantile, term_interval
from ..running.results import MUST_HOLD, REPORTED, Check, Number

MEASURES = {"total": "predictive entropy", "epistemic": "mutual information"}
Predicted = Mapping[str, Tensor]


def auroc(inside: Tensor, outside: Tensor) -> Term:
    """Its standard error is DeLong's: that of two independent means of placements."""
    error = sum(float(placed.var()) / len(placed) for placed in (_placed(inside, outside), _placed(outside, inside)))
    return Term(bayes.ood_auroc(inside, outside), math.sqrt(error))


def control(inside: Predicted, same: Predicted) -> Check:
    found = [auroc(inside[measure], same[measure]) for measure in MEASURES]
    worst = max(found, key=lambda one: abs(one.value - 0.5) / one.error)
    half = t_quantile(1 - LEVEL / 2 / len(found), math.inf) * worst.error
    claim = "Two halves of the test set are not told apart (AUROC that speaks most against it)"
    return Check(
        claim, MUST_HOLD, worst.value, (worst.value - half, worst.value + half), abs(worst.value - 0.5) <= half
    )


def separated(inside: Predicted, outside: Mapping[str, Predicted]) -> list[Check]:
    return [
        _above_chance(f"{named.capitalize()} is above that of known pictures: {kind}", inside[measure], far[measure])
        for kind, far in outside.items()
        for measure, named in MEASURES.items()
    ]


def errors_found(whole: Predicted, labels: Tensor) -> Check:
    wrong = whole["mean"].argmax(1) != labels
    entropy = whole["total"]
    return _above_chance(
        "Predictive entropy of wrong answers is above that of right ones", entropy[~wrong], entropy[wrong]
    )


def better_than_the_mean(whole: Predicted, labels: Tensor) -> Check:
    own, plain = (whole[name].gather(1, labels[:, None]).clamp_min(1e-12).log() for name in ("mean", "plain"))
    value, _, low, high = interval((plain - own).flatten().tolist())
    claim = "The log-likelihood of test labels is no worse than at the mean weights (loss of it per picture, nats)"
    return Check(claim, REPORTED, value, (low, high), low <= 0)


def numbers(inside: Predicted, outside: Mapping[str, Predicted], whole: Predicted, labels: Tensor) -> dict[str, Number]:
    given: dict[str, Number] = {}
    for name, key in (("", "mean"), (" at the mean weights", "plain")):
        scores = bayes.evaluate(whole[key], labels)
        given[f"test error{name}"] = 1 - scores.accuracy
        given[f"negative log-likelihood{name}"] = scores.nll
        given[f"Brier score{name}"] = scores.brier
        given[f"expected calibration error{name}"] = scores.ece
    right = whole["mean"].argmax(1) == labels
    given["mean risk over all coverages, by entropy"] = bayes.selective(whole["total"], right).area
    for kind, far in outside.items():
        plain = (torch.special.entr(some["plain"]).sum(1) for some in (inside, far))
        given[f"{kind}: AUROC of the entropy at the mean weights"] = auroc(*plain).value
        for measure, named in MEASURES.items():
            found = auroc(inside[measure], far[measure])
            given[f"{kind}: AUROC of the {named}"] = f"{found.value:.4f} ± {found.error:.4f}"
    return given


def _above_chance(claim: str, inside: Tensor, outside: Tensor) -> Check:
    if not len(inside) or not len(outside):
        return Check(f"{claim} (AUROC)", REPORTED, None, None, False)
    found = auroc(inside, outside)
    low, high = term_interval(found) or (math.nan, math.nan)
    return Check(f"{claim} (AUROC)", REPORTED, found.value, (low, high), low > 0.5)


def _placed(some: Tensor, others: Tensor) -> Tensor:
    """For each, the share of the others below it; ties count half."""
    ordered = others.double().sort().values
    places = [torch.searchsorted(ordered, some.double(), right=right) for right in (False, True)]
    return (places[0] + places[1]).double() / 2 / len(others)
