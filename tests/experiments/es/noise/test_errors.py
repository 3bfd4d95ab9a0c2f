"""Errors of estimates against theory."""

from pathlib import Path

import pytest

from flipout.experiments.es.noise.errors import measured_errors, methods
from flipout.experiments.es.noise.tasks import LINEAR
from tests.experiments.es.noise.test_tasks import SMALL, run_in
from tests.statistics import assert_mean

METHODS = methods(10)


QUICK = ("rank_one, pairs", "low_rank(1)", "flipout, one base, pairs")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in METHODS])
def test_the_error_on_a_linear_fitness(name: str, tmp_path: Path) -> None:
    run, method = run_in(tmp_path), METHODS[name]
    run._piece = "test"
    found = measured_errors(SMALL, LINEAR, method, 40, 0.1, 1000, run)
    assert_mean(found["error"], method.theory(40))


def test_theory_ranks_the_schemes() -> None:
    errors = {name: method.theory(400) for name, method in methods(40).items()}
    assert errors["rank_one"] == pytest.approx(383 / 400)
    assert errors["independent"] == pytest.approx(385 / 400)
    assert errors["low_rank(1)"] == pytest.approx(467 / 400)
    assert errors["rank_one"] < errors["independent"] < errors["flipout, group 40"] < errors["low_rank(1)"]
    assert errors["rank_one, pairs"] == 2 * errors["rank_one"]
