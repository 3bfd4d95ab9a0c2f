"""The checks hold for what they say, and not for the opposite."""

from typing import Any

import pytest

from flipout.experiments.shift import claims


def result(nll: float = 1.0, ece: float = 0.1, accuracy: float = 0.9) -> dict[str, Any]:
    return {"nll": nll, "ece": ece, "accuracy": accuracy, "rejection": 0.05, "member_nll": [1.0, 1.2]}


def found(**special: dict[claims.Condition, dict[str, Any]]) -> claims.Found:
    return {
        method: {condition: special.get(method, {}).get(condition, result()) for condition in claims.CONDITIONS}
        for method in claims.METHODS
    }


def check(results: claims.Found, name: str):
    return {check.id: check for check in claims.evaluate(results)}[name]


@pytest.mark.parametrize(("nll", "holds"), [(1.1, True), (1.11, False)])
def test_an_ensemble_worse_than_its_members_is_a_bug(nll, holds):
    checked = check(found(ensemble={("blur", 2): result(nll)}), "jensen")
    assert checked.holds == holds
    assert checked.value == pytest.approx(nll - 1.1)


def test_a_lower_error_of_calibration_is_seen():
    lower = {condition: result(ece=0.04 + 0.001 * condition[1]) for condition in claims.CONDITIONS}
    checked = check(found(flipout=lower), "ece/flipout")
    assert checked.value == pytest.approx(-0.057)
    assert checked.holds
    assert not check(found(flipout=lower), "ece/dropout").holds


def test_one_corruption_does_not_decide():
    lower = {("noise", strength): result(nll=0.5) for strength in range(1, 6)}
    checked = check(found(flipout=lower), "nll/flipout")
    assert checked.value == pytest.approx(-0.1)
    assert not checked.holds


@pytest.mark.parametrize(("accuracy", "holds"), [(0.892, True), (0.88, False)])
def test_a_point_of_accuracy_may_be_lost(accuracy, holds):
    assert check(found(flipout={claims.CLEAN: result(accuracy=accuracy)}), "accuracy").holds == holds


def test_numbers_are_means_over_the_corruptions():
    numbers = claims.measured_numbers(found(plain={("noise", 4): result(ece=0.6)}))
    assert numbers["plain, strength 4: expected calibration error"] == pytest.approx(0.2)
    assert numbers["plain, test set: expected calibration error"] == pytest.approx(0.1)
    assert len(numbers) == 4 * 4 * 6
