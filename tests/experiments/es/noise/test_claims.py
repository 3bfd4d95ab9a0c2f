"""Theory that is missed is found, and ranks are reported as they are."""

import pytest

from flipout.experiments.es.noise import claims
from flipout.experiments.es.noise.errors import methods
from flipout.experiments.es.noise.tasks import LINEAR

METHODS = methods(40)


def lists(error: float, seconds: float = 1.0) -> dict[str, list[float]]:
    return {"error": [error * (1 + d) for d in (-0.02, 0.02) * 10], "cosine": [0.5] * 20, "seconds": [seconds] * 20}


def test_theory_holds_or_not() -> None:
    right = {name: lists(method.theory(400)) for name, method in METHODS.items()}
    assert claims.theory(right, METHODS, 400).holds
    wrong = claims.theory({**right, "rank_one": lists(2 * METHODS["rank_one"].theory(400))}, METHODS, 400)
    assert not wrong.holds
    assert wrong.value == pytest.approx(2)


def test_ranks_on_networks() -> None:
    found = {LINEAR: {}, "fc": {name: lists(10.0, 2.0) for name in METHODS}}
    found["fc"]["rank_one"] = lists(10.5, 1.0)
    found["fc"]["rank_one, pairs"] = lists(15.0, 2.0)
    found["fc"]["low_rank(1)"] = lists(10.0, 1.5)
    checks = {check.id: check for check in claims.reported(found)}
    assert checks.keys() == {"members/fc", "members/fc-pairs", "time/fc", "time/fc-pairs"}
    assert checks["members/fc"].value == pytest.approx(1.05)
    assert [checks[f"members/{n}"].holds for n in ("fc", "fc-pairs")] == [True, False]
    assert checks["time/fc"].value == pytest.approx(10.5 / 15)
    assert "low_rank(1)" in checks["time/fc"].remark
    assert not checks["time/fc-pairs"].holds


def test_errors_at_equal_time() -> None:
    assert claims.at_equal_time(lists(10.0, 2.0)) == pytest.approx(20)
    numbers = claims.numbers({"fc": {"rank_one": lists(1.0), "independent": lists(1.0, 3.0)}}, METHODS, 400)
    assert numbers["fc, independent: error at equal time / least"] == pytest.approx(3)
