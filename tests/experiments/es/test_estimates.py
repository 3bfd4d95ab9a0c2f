"""Estimates are of one gradient, and a biased one is found out."""

from dataclasses import replace

import pytest

from flipout.experiments.es import claims
from flipout.experiments.es.estimates import NOISY, drawn
from flipout.experiments.running.results import MUST_HOLD
from flipout.experiments.training.supervised import prepare
from tests.experiments.es.toys import SMALL


def test_estimates_are_of_one_gradient_and_a_biased_one_is_found_out(run):
    prepared = prepare(SMALL, run)
    found = {m: drawn(SMALL, prepared, m, 400, 40, run) for m in ("FlipES", "IdealES", NOISY)}
    check = claims.same_gradient(found)
    assert (check.kind, check.holds) == (MUST_HOLD, True)
    name = "fc2.weight"
    assert all(claims.Mean.of(estimates["along"][name]).value > 0 for estimates in found.values())
    off = {**found["FlipES"]["along"], name: [1.5 * value for value in found["FlipES"]["along"][name]]}
    assert not claims.same_gradient({**found, "FlipES": {**found["FlipES"], "along": off}}).holds


@pytest.mark.parametrize("fitness", ["likelihood", "accuracy"])
def test_estimates_where_there_is_no_gradient(run, fitness):
    config = replace(SMALL, units="binary", fitness=fitness, std=0.2)
    prepared = prepare(config, run)
    found = {method: drawn(config, prepared, method, 400, 30, run) for method in ("FlipES", "IdealES")}
    assert claims.same_gradient(found).holds
    z = [claims.Mean.of(estimates["along"]["fc1.weight"]) for estimates in found.values()]
    assert all(mean.value > 3 * mean.error for mean in z)  # what backpropagation cannot see
