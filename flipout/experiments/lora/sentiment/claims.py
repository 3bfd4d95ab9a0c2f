"""What is reported of a posterior on the adapter of an encoder."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...evidence.checks import ratio_check
from ...evidence.statistics import geometric, interval
from ...running.results import REPORTED, Check, Number
from ..claims import Costs, over_plain
from ..rows import TITLES
from .ratings import SHIFTS

ROWS_FIGURE = "rows"
LEVEL = 0.9  # of the intervals whose coverage is measured
Table = Mapping[str, Sequence[Mapping[str, Any]]]  # row → what each seed found


def better(table: Table) -> list[Check]:
    """On the shifts together, Bayesian LoRA has a lower NLL and a coverage closer to its level than plain LoRA."""
    pairs = list(zip(table["flipout"], table["lora"], strict=True))
    likelihoods = [_mean(ours, "nll") - _mean(plain, "nll") for ours, plain in pairs]
    misses = [_miss(ours) - _miss(plain) for ours, plain in pairs]
    return [
        _difference(
            "likelihood-shift",
            "On the shifts, Bayesian LoRA has a lower NLL than plain LoRA (mean difference over the shifts, in nats)",
            "difference of NLL",
            likelihoods,
        ),
        _difference(
            "coverage-shift",
            f"On the shifts, the coverage of Bayesian LoRA's {LEVEL:.0%} intervals is closer to {LEVEL:.0%} than that "
            "of plain LoRA's (difference of the mean distances)",
            "difference of distances",
            misses,
        ),
        _no_worse(pairs),
    ]


def _no_worse(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Check:
    value, low, high = geometric([ours["test"]["rmse"] / plain["test"]["rmse"] for ours, plain in pairs])
    ends = (low, high) if len(pairs) > 1 else (value, value)
    claim = "On the test set, Bayesian LoRA's RMSE is at most 1.02 times plain LoRA's (ratio)"
    return ratio_check("rmse", claim, "ratio of RMSE", (value, *ends), value <= 1.02, ROWS_FIGURE)


def _difference(name: str, claim: str, quantity: str, values: Sequence[float]) -> Check:
    value, _, low, high = interval(values)
    ends = (low, high) if len(values) > 1 else (value, value)
    return Check(name, claim, REPORTED, quantity, value, ends, value < 0, ROWS_FIGURE)


def _mean(seed: Mapping[str, Any], name: str) -> float:
    return sum(seed[where][name] for where in SHIFTS) / len(SHIFTS)


def _miss(seed: Mapping[str, Any]) -> float:
    return sum(abs(seed[where]["coverage"] - LEVEL) for where in SHIFTS) / len(SHIFTS)


def measured_numbers(table: Table, costs: Costs) -> dict[str, Number]:
    numbers: dict[str, Number] = {}
    for where in ("test", *SHIFTS):
        for row, seeds in table.items():
            for name in ("rmse", "nll", "coverage"):
                numbers[f"{where}, {TITLES[row]}: {name}"] = interval([seed[where][name] for seed in seeds])[0]
    for row in costs:
        numbers[f"{TITLES[row]}: time of a step over plain LoRA's"] = geometric(over_plain(costs, row, "seconds"))[0]
        if costs[row]["peak"]:
            numbers[f"{TITLES[row]}: peak memory over plain LoRA's"] = geometric(over_plain(costs, row, "peak"))[0]
    return numbers
