"""Claims hold and fail where they should."""

from typing import Any

import pytest

from flipout.experiments.lora import claims
from flipout.experiments.lora.rows import ROWS


def costs(seconds: float, peak: float | None = None) -> dict[str, dict[str, list[float]]]:
    plain, ours = ([], []) if peak is None else ([2e9], [2e9 * peak])
    return {
        "lora": {"seconds": [1.0, 2.0], "peak": plain},
        "flipout": {"seconds": [seconds, 2 * seconds], "peak": ours},
    }


def table(ece: float, accuracy: float = 0.8) -> dict[str, list[dict[str, Any]]]:
    plain = {"accuracy": 0.8, "nll": 1.0, "ece": 0.2, "auroc": None}
    ours = {**plain, "ece": ece, "accuracy": accuracy}
    return {row: [{"test": plain, "shift": plain}] * 2 for row in ROWS} | {
        "flipout": [{"test": ours, "shift": ours}] * 2
    }


def test_calibration_needs_accuracy_too() -> None:
    assert all(check.holds for check in claims.better(table(0.1)))
    assert not any(check.holds for check in claims.better(table(0.11)))
    assert not any(check.holds for check in claims.better(table(0.1, accuracy=0.79)))


def test_information() -> None:
    found = {"explicit": [0.40, 0.01], "per sequence": [0.41, 0.01], "per token": [0.1, 0.01]}
    assert claims.same_information(found).holds
    assert claims.per_token_loses(found).holds
    assert (claims.per_token_differs(found).holds, claims.per_token_differs(found).kind) == (True, "must_hold")
    share = claims.share_per_token(found)
    assert (share.holds, share.value) == (True, pytest.approx(0.25))
    assert not claims.share_per_token({**found, "per token": [0.31, 0.01]}).holds
    assert not claims.same_information({**found, "per sequence": [0.5, 0.01]}).holds
    assert not claims.per_token_loses({**found, "per token": [0.41, 0.01]}).holds


def test_the_same_model() -> None:
    assert all(check.holds for check in claims.same_model({"merged": 1e-6, "reloaded": 0.0}))
    assert not any(check.holds for check in claims.same_model({"merged": 1e-3, "reloaded": 1e-9}))


def test_costs_and_variance() -> None:
    assert claims.step_time(costs(1.1)).holds
    assert not claims.step_time(costs(1.2)).holds
    assert [check.holds for check in claims.peak_memory(costs(1.0, peak=1.04))] == [True]
    assert [check.holds for check in claims.peak_memory(costs(1.0, peak=1.06))] == [False]
    assert claims.peak_memory(costs(1.0)) == []  # on a CPU nobody measures it
    assert claims.less_variance([{"flipout": 1.0, "shared": 3.0}] * 2).holds
    assert not claims.less_variance([{"flipout": 3.0, "shared": 1.0}]).holds


def test_numbers_leave_out_what_was_not_measured() -> None:
    found = {"explicit": [0.4, 0.01]}
    numbers = claims.measured_numbers(table(0.1), found, [{"flipout": 1.0, "shared": 2.0}], costs(1.1))
    assert not any("auroc" in name or "memory" in name for name in numbers)
    assert numbers["gradient variance, flipout / shared"] == 0.5
