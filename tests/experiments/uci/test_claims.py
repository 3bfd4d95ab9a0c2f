"""The checks hold for what they say, and not for the opposite."""

from typing import Any

import pytest

from flipout.experiments.uci import claims
from flipout.experiments.uci.networks import METHODS
from flipout.experiments.uci.published import PUBLISHED

STEPS = [0, 100, 200, 400, 800]
LOSSES = {scheme: [1.0, 1.1, 0.9, 1.05, 0.95, 1.0] for scheme in ("shared", "flipout", "local_reparam")}


def piece(
    log_likelihood: float = 0.0, coverage: float = 0.9, bound: tuple[float, ...] = (5, 4, 3, 2, 1)
) -> dict[str, Any]:
    scores = {"rmse": [1.0, 1.2], "crps": [0.5, 0.7], "log_likelihood": [log_likelihood] * 2}
    curve = {"steps": STEPS, "bound": [float(value) for value in bound]}
    return {**scores, **curve, "coverage": [coverage - 0.01, coverage + 0.01], "losses": LOSSES, "seconds": 2.0}


def found(sets: dict[str, dict[str, Any]]) -> claims.Found:
    """Return the pieces of each set: the same for every method, except those that are named."""
    return {name: {method: special.get(method, piece()) for method in METHODS} for name, special in sets.items()}


def check(results: claims.Found, name: str):
    return {check.id: check for check in claims.evaluate(results)}[name]


@pytest.mark.parametrize(("coverages", "holds"), [((0.8, 0.95), True), ((0.8, 0.85), False), ((0.99, 0.97), False)])
def test_the_coverage_is_averaged_over_the_sets(coverages, holds):
    sets = {name: {"plain": piece(coverage=value)} for name, value in zip(("yacht", "energy"), coverages, strict=True)}
    checked = check(found(sets), "coverage/plain")
    assert checked.value == pytest.approx(sum(coverages) / 2)
    assert checked.holds == holds
    assert check(found(sets), "coverage/flipout").holds


@pytest.mark.parametrize(("below", "holds"), [(0, True), (3, True), (4, False)])
def test_six_of_nine_log_likelihoods_are_enough(below, holds):
    sets = {
        name: {"flipout": piece(published - 0.001 if number < below else published)}
        for number, (name, (_, (published, _))) in enumerate(PUBLISHED.items())
    }
    checked = check(found(sets), "published/flipout")
    assert (checked.value, checked.holds) == (9 - below, holds)
    assert "at least 6 of 9" in checked.claim
    assert claims.not_worse(found(sets), "flipout") == list(PUBLISHED)[below:]


def test_sets_without_a_published_number_are_not_compared():
    results = found({"diabetes": {}})
    assert not [check for check in claims.evaluate(results) if check.family == "published"]
    assert claims.paper_numbers(results) == {}


def test_only_the_methods_that_were_run_are_checked():
    results = {name: {"dropout": piece(), "ensemble": piece()} for name in ("yacht", "energy")}
    names = {check.id for check in claims.evaluate(results)}
    assert names == {"coverage/dropout", "coverage/ensemble", "published/dropout", "published/ensemble"}
    assert "same-loss" in {check.id for check in claims.evaluate({"yacht": {"flipout": piece()}})}
    assert claims.paper_numbers({"yacht": {"plain": piece()}}) == {}
    assert not any("flipout" in key for key in claims.measured_numbers(results))


def test_flipout_that_is_twice_as_fast_needs_half_the_steps():
    fast, slow = piece(bound=(5, 3, 1, 0.5, 0)), piece(bound=(5, 4, 3, 2, 1))
    checked = check(found({name: {"flipout": fast, "shared": slow} for name in ("yacht", "energy")}), "fewer-steps/all")
    assert checked.value == pytest.approx(800 / 200)
    assert checked.holds
    assert check(found({"yacht": {}, "energy": {}}), "fewer-steps/half").value == pytest.approx(1.0)


def test_a_bound_that_flipout_never_reaches_is_said():
    checked = check(found({"yacht": {"flipout": piece(bound=(5, 4, 3, 3, 3))}, "energy": {}}), "fewer-steps/all")
    assert (checked.value, checked.holds, checked.remark) == (None, False, "never reached")


def test_the_published_numbers_stand_beside_ours():
    results = found({name: {} for name in PUBLISHED})
    paper = claims.paper_numbers(results)
    assert paper.keys() <= claims.measured_numbers(results).keys()
    assert paper["yacht, MC dropout: log-likelihood"] == "-1.250 ± 0.015"
    assert paper["naval-propulsion-plant, MC dropout: RMSE"] == "0.00100"
    assert len(paper) == 18
