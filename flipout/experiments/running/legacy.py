"""Old result files, whose checks have neither ids nor quantities.

This is the one place that reads sentences. The sentences are those of old files, and frozen: what an experiment says
today does not matter here.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from .names import slug


class Rule(NamedTuple):
    pattern: str  # of the whole claim
    id: str  # with the groups of the pattern as {0}, {1}, …
    quantity: str
    figure: str | None = None


RATIO, SPREADS = "worst ratio", "difference in standard deviations"
VARIANCE = (
    Rule(r"At N = 1 the variances of .* are equal, in every layer.*", "start-together", RATIO, "variance"),
    Rule(r"(\w+) ≤ .* at every N, in every layer.*", "not-above-{0}", RATIO, "variance"),
    Rule(r"(\w+) is below \w+( and \w+)*( at N = \d+)? \(geom.*", "below-{0}", "geometric mean of ratios", "variance"),
    Rule(r"Every curve has the form a \+ b/N.*", "form", "p-value", "variance"),
    Rule(r"The variance predicted from α, β, γ is the measured one.*", "predicted", RATIO, "variance"),
    Rule(r"(\S+): the log-log slope of flipout over .*", "slope/{0}", "slope of flipout", "variance"),
    Rule(
        r"(\S+): shared is within 10 % of its floor.*",
        "floor/{0}",
        "N at which shared is within 10 % of its floor",
        "variance",
    ),
    Rule(r"(\S+): α ≫ β ≫ γ .*", "orders/{0}", "smaller of α / β and β / γ"),
)
THEOREM = (
    Rule(r"(\w+): The variance predicted from α, β, γ is the measured one.*", "predicted/{0}", RATIO),
    Rule(r"(\w+): (\S+): α ≫ β ≫ γ .*", "orders/{0}/{1}", "smaller of α / β and β / γ", "{0}"),
)
MULTIGPU = (
    Rule(r"The variance predicted from α, β, γ is the measured one.*", "predicted", RATIO),
    Rule(r"A base per device gives no more variance than one base.*", "base-per-device", RATIO, "variance"),
    Rule(
        r"(\S+): shared / flipout at N = (\d+) on (\d+) devices is above 1",
        "gain-{1}-on-{2}/{0}",
        "shared / flipout at N = {1} on {2} devices",
        "variance",
    ),
    *VARIANCE,
)
LOSS = (
    Rule(r"At .* expect the same loss .*", "same-loss", "largest difference"),
    Rule(
        r"At .* a batch's loss varies no more under flipout than under shared.*", "loss-variance", "ratio of variances"
    ),
)
LARGE_BATCH = (
    *LOSS,
    Rule(
        r"Flipout needs [\d. a-z]*fewer iterations for the (.*) that shared has after (\d+) \(ratio\)",
        "fewer-iterations-{0}-{1}",
        "times fewer iterations",
        "loss",
    ),
    Rule(r"By the clock, flipout gets there .*", "by-the-clock", "times faster by the clock"),
    Rule(r"At the end the test error of flipout is not above .*", "end-test-error", "difference in points", "error"),
    Rule(r"At the end the (.*) of flipout is within the spread of .*", "end-{0}", SPREADS, "loss"),
)
POSTERIOR = (
    Rule(r".* find the exact posterior's means .*", "means", "largest relative error", "posterior"),
    Rule(r".* find the spreads of the best factorised .*", "spreads", "largest relative error", "posterior"),
    Rule(
        r"Held-out targets are in their .* as often as theory says .*", "coverage", "largest difference", "calibration"
    ),
    Rule(r"\w+: (\d+)% of held-out targets are in their .*", "calibrated-{0}", "coverage", "calibration"),
)
UNCERTAINTY = (
    Rule(r"Two halves of the test set are not told apart .*", "halves", "AUROC", "separation"),
    Rule(r"(.*) is above that of known pictures: (.*) \(AUROC\)", "{0}-{1}", "AUROC", "separation"),
    Rule(r"Predictive entropy of wrong answers is above .*", "wrong-answers", "AUROC"),
    Rule(r"The log-likelihood of test labels is no worse .*", "log-likelihood", "nats per picture"),
)
UPDATES, POINTS = "ratio of updates", "difference in points"
ES = (
    Rule(
        r".* estimate the same gradient of every Parameter(?:: (.*)|.*) \(diff.*",
        "same-gradient-{0}",
        "largest difference",
    ),
    Rule(r"The estimate of FlipES varies no less than .*", "variance-not-less", "ratio of variances"),
    Rule(r"The estimate of FlipES has at most .*", "variance-at-most", "ratio of variances"),
    Rule(r"At the end the (.*) of (FlipES [\d,]+) is within the spread of .*", "end-{0}-{1}", SPREADS, "updates"),
    Rule(r"The mean over the looks of the (.*) of (FlipES [\d,]+) is within .*", "mean-{0}-{1}", SPREADS, "updates"),
    Rule(r"(.*) needs (?:no more updates than|at most .* times the updates of) .*", "updates-{0}", UPDATES, "updates"),
    Rule(r"At the end the test error of (.*) is at most .* points above that of (.*)", "near-{0}", POINTS, "updates"),
    Rule(r"At the end the test error of (.*) is below that of (.*) \(.*", "lower-{0}-{1}", POINTS, "updates"),
    Rule(r"Binary units let no gradient through .*", "no-gradient", "largest entry"),
)
RL = (
    *ES[:1],
    Rule(r"(\w+): at the end the mean return of .*", "learned-{0}", "lowest mean return", "returns"),
    Rule(r"The mean return of FlipES over all generations is .*", "mean-return", SPREADS, "returns"),
    Rule(r"At the end the mean return of FlipES is .*", "end-return", SPREADS, "returns"),
)
SCALING = (
    Rule(r"One at a time on a CPU or all at once .*", "same-fitness", SPREADS),
    Rule(r"The device replaces at least .*", "cores-replaced", "cores", "scaling"),
    Rule(r"At the stated prices it is at least .*", "cheaper", "times cheaper"),
    Rule(r"On the device FlipES is faster than IdealES.*", "faster-than-ideal", "times faster", "scaling"),
    Rule(r"From the smallest to the largest (\w+) the time of a core.*", "growth-{0}", "ratio of growths", "scaling"),
)
# The titles that rows had, and their names. A row that is not here has the slug of its title.
ROWS = {
    "Mult. Gauss + flipout": "flipout",
    "Mult. Gauss (σ = 1)": "shared",
    "unregularised LSTM": "unregularised",
    "unregularised LSTM, a quarter of the epochs": "unregularised-short",
    "Gal (2016)": "gal",
    "zoneout (2016)": "zoneout",
    "Zaremba (2014)": "zaremba",
    "Semeniuta (2016)": "semeniuta",
    "Semeniuta, of cell states": "semeniuta-state",
    "Semeniuta, a mask for a window": "semeniuta-windows",
    "Semeniuta, a quarter of the epochs": "semeniuta-short",
    "Semeniuta, masks of each step": "semeniuta-steps",
    "Semeniuta, none between layers": "semeniuta-ends",
    "Semeniuta, masks of each step, none between layers": "semeniuta-steps-ends",
    "WD (2017)": "wd",
    "WD (2017), tied": "wd-tied",
}
LANGUAGE = (
    Rule(r"The loss in long windows is that of one token .*", "long-windows", "difference in nats"),
    *LOSS,
    Rule(
        r"(.*) is (?:not above|below) (.*) on the validation text \((.*)\)",
        "valid-{0}-{1}",
        "{2}",
        "curves",
    ),
    Rule(
        r"WD \+ flipout is below WD on the test text, (\w+) .*", "test-below-{0}", "difference in perplexity", "table"
    ),
    Rule(r"(.*): test (BPC|perplexity) is .*", "test-{0}", "test {1}", "table"),
    Rule(r"The \d+ rows rank as in the paper.*", "ranking", "neighbours the other way round", "table"),
    Rule(r"At the end WD \+ flipout has the lower training.*", "end-training", "difference of logarithms", "curves"),
    Rule(r"WD \+ flipout needs fewer epochs .*", "fewer-epochs", "ratio of epochs", "curves"),
)
RULES = {
    **dict.fromkeys(("variance-fc", "variance-convgg", "variance-lstm", "variance-wd-lstm"), VARIANCE),
    "variance-multigpu": MULTIGPU,
    "theorem": THEOREM,
    **dict.fromkeys(("large-batch-fc", "large-batch-convle"), LARGE_BATCH),
    "posterior-check": POSTERIOR,
    "uncertainty": UNCERTAINTY,
    **dict.fromkeys(("ptb-char", "ptb-word", "ptb-large-batch"), LANGUAGE),
    **dict.fromkeys(("es-ideal", "es-backprop-fc", "es-backprop-convle", "es-discrete"), ES),
    "es-rl": RL,
    "es-scaling": SCALING,
}


def with_ids(content: Any, shown: Collection[str]) -> Any:
    """Add id, quantity, figure and remark to the checks of an old result file. Everything else stays as it is."""
    if not isinstance(content, dict) or not isinstance(content.get("checks"), list):
        return content
    if all(isinstance(check, dict) and "id" in check for check in content["checks"]):
        return content
    figures = content.get("figures")
    drawn = [figure.get("name") for figure in figures if isinstance(figure, dict)] if isinstance(figures, list) else []
    taken = [check["id"] for check in content["checks"] if isinstance(check, dict) and "id" in check]
    checks = [_with_id(check, content.get("experiment"), shown, drawn, taken) for check in content["checks"]]
    return {**content, "checks": checks}


def _with_id(check: Any, experiment: Any, shown: Collection[str], drawn: list[Any], taken: list[Any]) -> Any:
    if not isinstance(check, dict) or "id" in check or not isinstance(check.get("claim"), str):
        return check
    remark = re.search(r"; ([^()]*)$", check["claim"])
    claim = check["claim"][: remark.start()] if remark else check["claim"]
    found = _found(claim, RULES.get(experiment, ()) if isinstance(experiment, str) else ())
    figure = found.figure if found.figure in drawn and _is_shown(found.id, shown) else None
    name = next(candidate for candidate in _names(found.id) if candidate not in taken)
    taken.append(name)
    added = {"figure": figure, "quantity": found.quantity, "remark": remark[1] if remark else ""}
    return {"id": name, **added, **check, "claim": claim}


def _found(claim: str, rules: tuple[Rule, ...]) -> Rule:
    for rule in rules:
        if match := re.fullmatch(rule.pattern, claim):
            groups = [group or "" for group in match.groups()]
            name = rule.id.format(*(slug(ROWS.get(group, group)) for group in groups)).strip("-")
            figure = rule.figure and rule.figure.format(*groups)
            return Rule(rule.pattern, name, rule.quantity.format(*groups), figure)
    return Rule("", slug(claim)[:60].strip("-") or "check", "value")


def _is_shown(name: str, shown: Collection[str]) -> bool:
    """Tell whether a figure of variances has the layer that a check is about."""
    family, _, layer = name.partition("/")
    return family not in ("slope", "floor") or not shown or layer in shown


def _names(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1
