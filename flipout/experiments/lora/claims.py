"""What must hold of a posterior on an adapter, and what is reported of it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from scipy import stats

from ..evidence.checks import ratio_check
from ..evidence.statistics import LEVEL, Z90, geometric, interval
from ..running.results import MUST_HOLD, REPORTED, Check, Number
from .rows import TITLES

ROWS_FIGURE, INFORMATION_FIGURE = "rows", "information"
Table = Mapping[str, Sequence[Mapping[str, Any]]]  # row → what each seed found
Costs = Mapping[str, Mapping[str, Sequence[float]]]  # row → seconds and peak memory of a step, in each round
Information = Mapping[str, Sequence[float]]  # way to draw → value and standard error


def same_model(same: Mapping[str, float]) -> list[Check]:
    """The merged mean is plain LoRA's forward pass, and a loaded posterior predicts as the saved one did."""
    return [
        Check(
            "merged",
            "The merged mean gives the logits of the adapter's own forward pass (largest relative difference, at most "
            "1e-4 in fp32)",
            MUST_HOLD,
            "largest relative difference",
            same["merged"],
            None,
            same["merged"] <= 1e-4,
        ),
        Check(
            "reloaded",
            "A posterior that was saved and loaded predicts bit for bit the same (largest difference)",
            MUST_HOLD,
            "largest difference",
            same["reloaded"],
            None,
            same["reloaded"] == 0.0,
        ),
    ]


def same_information(found: Information) -> Check:
    """One weight per sequence has the mutual information of explicit samples."""
    difference, half = _difference(found, "per sequence")
    claim = "The mutual information under one weight per sequence is that of explicit samples (difference, in nats)"
    bounds, holds = (difference - half, difference + half), abs(difference) <= half
    return Check("same-information", claim, MUST_HOLD, "difference", difference, bounds, holds, INFORMATION_FIGURE)


def per_token_loses(found: Information) -> Check:
    """Signs per token do not have it."""
    difference, half = _difference(found, "per token")
    claim = "Signs per token have another mutual information than explicit samples (difference, in nats)"
    bounds, holds = (difference - half, difference + half), abs(difference) > half
    return Check("per-token", claim, REPORTED, "difference", difference, bounds, holds, INFORMATION_FIGURE)


def per_token_differs(found: Information) -> Check:
    """The same as something that must hold: of a real language model, whose tokens have directions in common."""
    check = per_token_loses(found)
    return replace(check, kind=MUST_HOLD)


def share_per_token(found: Information) -> Check:
    """Signs per token have clearly less of it."""
    (truth, error), (value, other_error) = found["explicit"], found["per token"]
    share = value / truth
    half = Z90 * math.hypot(other_error, share * error) / truth
    claim = "Signs per token lose at least a quarter of the mutual information (their share of it)"
    return ratio_check(
        "per-token-share", claim, "share", (share, share - half, share + half), share <= 0.75, INFORMATION_FIGURE
    )


def _difference(found: Information, way: str) -> tuple[float, float]:
    """Return the difference to explicit samples, and what it may be by chance."""
    (truth, error), (value, other_error) = found["explicit"], found[way]
    return value - truth, float(stats.norm.isf(LEVEL / 2)) * math.hypot(error, other_error)


def better(table: Table) -> list[Check]:
    """The calibration error of Bayesian LoRA is at most half of plain LoRA's, at no worse accuracy."""
    checks = []
    for where, name in (("test", "calibrated"), ("shift", "calibrated-shift")):
        pairs = list(zip(table["flipout"], table["lora"], strict=True))
        ratio = geometric([ours[where]["ece"] / plain[where]["ece"] for ours, plain in pairs])
        accuracy = interval([ours[where]["accuracy"] - plain[where]["accuracy"] for ours, plain in pairs])[0]
        claim = (
            f"Bayesian LoRA has at most half of plain LoRA's calibration error on the {where} questions, at no worse "
            "accuracy (ratio of calibration errors)"
        )
        holds = ratio[0] <= 0.5 and accuracy >= 0
        checks.append(ratio_check(name, claim, "ratio of calibration errors", _closed(ratio), holds, ROWS_FIGURE))
    return checks


def less_variance(variances: Sequence[Mapping[str, float]]) -> Check:
    """The gradient of A varies less under flipout than under shared noise."""
    ratio = geometric([found["flipout"] / found["shared"] for found in variances])
    claim = "At the same posterior and batch, the gradient of A varies less under flipout than under shared (ratio)"
    return ratio_check("gradient-variance", claim, "ratio of variances", _closed(ratio), ratio[0] < 1, None)


def step_time(costs: Costs) -> Check:
    """A step takes little longer than one of plain LoRA."""
    ratio = geometric(over_plain(costs, "flipout", "seconds"))
    claim = "A training step of Bayesian LoRA takes at most 1.15 times one of plain LoRA (mean ratio, step by step)"
    return ratio_check("step-time", claim, "ratio of step times", _closed(ratio), ratio[0] <= 1.15, None)


def peak_memory(costs: Costs) -> list[Check]:
    """A step takes little more memory than one of plain LoRA. No check where memory was not measured: on a CPU."""
    if not costs["flipout"]["peak"]:
        return []
    ratio = geometric(over_plain(costs, "flipout", "peak"))
    claim = "A training step of Bayesian LoRA takes at most 1.05 times the peak memory of one of plain LoRA (ratio)"
    return [ratio_check("peak-memory", claim, "ratio of peak memory", _closed(ratio), ratio[0] <= 1.05, None)]


def over_plain(costs: Costs, row: str, name: str) -> list[float]:
    return [ours / plain for ours, plain in zip(costs[row][name], costs["lora"][name], strict=True)]


def measured_numbers(
    table: Table, found: Information, variances: Sequence[Mapping[str, float]], costs: Costs
) -> dict[str, Number]:
    numbers: dict[str, Number] = {}
    for where in ("test", "shift"):
        for row, seeds in table.items():
            for name in ("accuracy", "nll", "ece", "auroc"):
                values = [seed[where][name] for seed in seeds if seed[where][name] is not None]
                if values:
                    numbers[f"{where}, {TITLES[row]}: {name}"] = interval(values)[0]
    for row in costs:
        numbers[f"{TITLES[row]}: time of a step over plain LoRA's"] = geometric(over_plain(costs, row, "seconds"))[0]
        if costs[row]["peak"]:
            numbers[f"{TITLES[row]}: peak memory over plain LoRA's"] = geometric(over_plain(costs, row, "peak"))[0]
    for way, (value, _) in found.items():
        numbers[f"mutual information, {way}, nats"] = value
    numbers["gradient variance, flipout / shared"] = geometric([v["flipout"] / v["shared"] for v in variances])[0]
    return numbers


def _closed(ratio: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return a ratio whose interval has ends: that of one seed has none, and is its value."""
    value, low, high = ratio
    return (value, low, high) if math.isfinite(high) else (value, value, value)
