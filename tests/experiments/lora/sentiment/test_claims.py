"""Claims hold and fail where they should."""

from typing import Any

import pytest

from flipout.experiments.lora.rows import ROWS
from flipout.experiments.lora.sentiment import claims
from flipout.experiments.lora.sentiment.ratings import SHIFTS


def table(**ours: float) -> dict[str, list[dict[str, Any]]]:
    plain = {"rmse": 1.0, "nll": 1.5, "coverage": 0.8}
    found: dict[str, list[dict[str, Any]]] = {row: [dict.fromkeys(("test", *SHIFTS), plain)] * 2 for row in ROWS}
    found["flipout"] = [{where: {**plain, **ours} for where in ("test", *SHIFTS)}] * 2
    return found


def holds(**ours: float) -> dict[str, bool]:
    return {check.id: check.holds for check in claims.better(table(**ours))}


def test_each_claim_sees_its_own_number() -> None:
    equal = {"likelihood-shift": False, "coverage-shift": False, "rmse": True}
    assert holds() == equal
    assert holds(nll=1.4) == {**equal, "likelihood-shift": True}
    assert holds(coverage=0.95) == {**equal, "coverage-shift": True}  # 0.05 away instead of 0.1
    assert not holds(coverage=0.69)["coverage-shift"]
    assert holds(rmse=1.03) == {**equal, "rmse": False}
    assert claims.better(table(nll=1.4))[0].value == pytest.approx(-0.1)


def test_numbers_of_every_row_and_place() -> None:
    costs = {row: {"seconds": [1.0, 2.0], "peak": []} for row in ("lora", "flipout")}
    numbers = claims.measured_numbers(table(nll=1.4), costs)
    assert numbers["films, Bayesian LoRA, flipout: nll"] == pytest.approx(1.4)
    assert numbers["Bayesian LoRA, flipout: time of a step over plain LoRA's"] == pytest.approx(1.0)
    assert len([name for name in numbers if name.endswith(": coverage")]) == 4 * len(ROWS)
    assert not any("memory" in name for name in numbers)
