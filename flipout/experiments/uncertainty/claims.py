"""Checks of what uncertainties are good for: AUROC with its interval."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from flipout import bayes
from flipout.variance import Term

from ..evidence.statistics import LEVEL, interval, t_quantile, term_interval
from ..running.names import slug
from ..running.results import MUST_HOLD, REPORTED, Check, Number

MEASURES = {"total": "predictive entropy", "epistemic": "mutual information"}
FIGURE = "separation"
Predicted = Mapping[str, Tensor]


def auroc(inside: Tensor, outside: Tensor) -> Term:
    """Return the AUROC with DeLong's standard error, from the means of both groups of placements."""
    error = sum(float(placed.var()) / len(placed) for placed in (_placed(inside, outside), _placed(outside, inside)))
    return Term(bayes.ood_auroc(inside, outside), math.sqrt(error))


def separation(inside: Predicted, outside: Mapping[str, Predicted]) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the AUROC of each uncertainty of each kind of unknown picture, with its standard error."""
    terms = {
        kind: {measure: auroc(inside[measure], unknown[measure]) for measure in MEASURES}
        for kind, unknown in outside.items()
    }
    return {kind: {m: (term.value, term.error) for m, term in found.items()} for kind, found in terms.items()}


def control(inside: Predicted, same: Predicted) -> Check:
    """No uncertainty tells two halves of the test set apart."""
    found = [auroc(inside[measure], same[measure]) for measure in MEASURES]
    worst = max(found, key=lambda term: abs(term.value - 0.5) / term.error)
    half = t_quantile(1 - LEVEL / 2 / len(found), math.inf) * worst.error
    claim = "Two halves of the test set are not told apart (AUROC furthest from 1/2)"
    bounds, holds = (worst.value - half, worst.value + half), abs(worst.value - 0.5) <= half
    return Check("halves", claim, MUST_HOLD, "AUROC", worst.value, bounds, holds, FIGURE)


def separated(inside: Predicted, outside: Mapping[str, Predicted]) -> list[Check]:
    """Every uncertainty of every kind of unknown picture is higher than for known pictures."""
    return [
        _above_chance(
            slug(f"{named} {kind}"),
            f"{named.capitalize()} is higher than for known pictures: {kind}",
            inside[measure],
            unknown[measure],
            FIGURE,
        )
        for kind, unknown in outside.items()
        for measure, named in MEASURES.items()
    ]


def errors_found(test_set: Predicted, labels: Tensor) -> Check:
    """Entropy is higher where the network is wrong."""
    wrong = test_set["mean"].argmax(1) != labels
    entropy = test_set["total"]
    claim = "Predictive entropy is higher for wrong answers than for right ones"
    return _above_chance("wrong-answers", claim, entropy[~wrong], entropy[wrong], None)


def better_than_the_mean(test_set: Predicted, labels: Tensor) -> Check:
    """Averaging over weights costs no log-likelihood."""
    averaged, plain = (test_set[name].gather(1, labels[:, None]).clamp_min(1e-12).log() for name in ("mean", "plain"))
    value, _, low, high = interval((plain - averaged).flatten().tolist())
    claim = "The log-likelihood of test labels is no worse than at the mean weights (loss of it per picture, nats)"
    return Check("log-likelihood", claim, REPORTED, "nats per picture", value, (low, high), low <= 0)


def measured_numbers(
    inside: Predicted, outside: Mapping[str, Predicted], test_set: Predicted, labels: Tensor
) -> dict[str, Number]:
    numbers: dict[str, Number] = {}
    for name, key in (("", "mean"), (" at the mean weights", "plain")):
        known = bayes.Prediction.from_outputs(test_set[key].log().unsqueeze(0), "categorical")
        scores = bayes.evaluate(known, labels)
        assert isinstance(scores, bayes.Scores)
        numbers[f"test error{name}"] = 1 - scores.accuracy
        numbers[f"negative log-likelihood{name}"] = scores.nll
        numbers[f"Brier score{name}"] = scores.brier
        numbers[f"expected calibration error{name}"] = scores.ece
    right = test_set["mean"].argmax(1) == labels
    numbers["mean risk over all coverages, by entropy"] = bayes.selective(test_set["total"], right).area
    for kind, unknown in outside.items():
        plain = (torch.special.entr(predicted["plain"]).sum(1) for predicted in (inside, unknown))
        numbers[f"{kind}: AUROC of the entropy at the mean weights"] = auroc(*plain).value
        for measure, named in MEASURES.items():
            found = auroc(inside[measure], unknown[measure])
            numbers[f"{kind}: AUROC of the {named}"] = f"{found.value:.4f} ± {found.error:.4f}"
    return numbers


def _above_chance(name: str, claim: str, inside: Tensor, outside: Tensor, figure: str | None) -> Check:
    claim = f"{claim} (AUROC)"
    if not len(inside) or not len(outside):
        return Check(name, claim, REPORTED, "AUROC", None, None, False, figure)
    found = auroc(inside, outside)
    low, high = term_interval(found) or (math.nan, math.nan)
    return Check(name, claim, REPORTED, "AUROC", found.value, (low, high), low > 0.5, figure)


def _placed(values: Tensor, others: Tensor) -> Tensor:
    """Return, for each value, the share of the others below it; ties count half."""
    ordered = others.double().sort().values
    places = [torch.searchsorted(ordered, values.double(), right=right) for right in (False, True)]
    return (places[0] + places[1]).double() / 2 / len(others)
