"""What must hold is found broken, and comparisons are reported as they are."""

import pytest

from flipout.experiments.es.llm import claims
from flipout.experiments.es.llm.training import AccuracyCurve
from flipout.experiments.running.results import MUST_HOLD, REPORTED


def curves(*ends: float, rate: float | None = 10.0) -> list[AccuracyCurve]:
    return [AccuracyCurve([0.0, 1.0], [0.25, end], 4, rate) for end in ends]


TABLE: claims.Table = {
    ("choice", "rank_one"): curves(0.5, 0.6),
    ("choice", "low_rank"): curves(0.4, 0.5),
    ("choice", "lora"): curves(0.8, 0.9, rate=None),
    ("text", "rank_one"): curves(0.2, 0.2),
}


def test_members_that_are_other_networks_break_a_claim() -> None:
    assert claims.exact(1e-6).holds
    assert not claims.exact(0.1).holds
    assert claims.exact(0.1).kind == MUST_HOLD


def test_comparisons_at_equal_time() -> None:
    checks = {check.id: check for check in claims.reported(TABLE, {"rank_one": 0.95})}
    assert checks.keys() == {"gain/choice", "gain/text", "time/choice-low_rank", "time/choice-lora", "share"}
    assert {check.kind for check in checks.values()} == {REPORTED}
    assert checks["gain/choice"].value == pytest.approx(0.3)
    assert checks["time/choice-low_rank"].value == pytest.approx(0.1)
    assert checks["time/choice-lora"].value == pytest.approx(-0.3)
    assert [name for name, check in checks.items() if check.holds] == ["gain/choice", "time/choice-low_rank", "share"]


def test_numbers() -> None:
    found = claims.numbers(TABLE, {"rank_one": 0.95})
    assert found["choice: held-out accuracy before training"] == 0.25
    assert found["choice, rank-one flips: members × tokens per second"] == 10
    assert not any("LoRA" in name and "per second" in name for name in found)
