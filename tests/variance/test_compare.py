"""Compare two measured variances, or one with a prediction."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from flipout._student import interval
from flipout.errors import InvalidArgument
from flipout.variance import Record, Term, compare
from tests.statistics import assert_probability


def record(values: np.ndarray) -> Record:
    return Record("w", "flipout", 1, *interval(values), 200, len(values))


@pytest.mark.parametrize("shift", [-1.0, 0.0, 0.3])
def test_two_records_are_compared_by_welchs_test(shift: float) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(1 + shift, 0.2, 5), rng.normal(1, 0.5, 50)
    found = compare(record(x), record(y))
    assert found.difference == pytest.approx(x.mean() - y.mean())
    assert found.error == pytest.approx(math.sqrt(x.var(ddof=1) / 5 + y.var(ddof=1) / 50))
    for p, alternative in ((found.p, "two-sided"), (found.p_greater, "greater")):
        theory: Any = stats.ttest_ind(x, y, equal_var=False, alternative=alternative)
        assert p == pytest.approx(theory.pvalue)
        assert found.freedom == pytest.approx(theory.df)


def test_a_prediction_with_a_known_error() -> None:
    x = np.array([1.0, 1.2, 1.1, 1.4])
    found = compare(record(x), Term(1.0, 0.0))
    theory: Any = stats.ttest_1samp(x, 1.0, alternative="greater")
    assert (found.freedom, found.p_greater) == pytest.approx((theory.df, theory.pvalue))
    found = compare(Term(1.3, 0.3), Term(1.0, 0.4))
    assert math.isinf(found.freedom)
    assert found.p == pytest.approx(2 * stats.norm.sf(0.6))


def test_false_alarm_rate_with_unequal_repeats() -> None:
    rng = np.random.default_rng(1)
    trials = [compare(record(rng.normal(1, 0.1, 5)), record(rng.normal(1, 0.05, 50))) for _ in range(3000)]
    assert_probability(sum(trial.p_greater < 0.05 for trial in trials), len(trials), 0.05)
    assert_probability(sum(trial.p < 0.05 for trial in trials), len(trials), 0.05)


def test_values_without_error() -> None:
    same = compare(Term(2.0, 0.0), Term(2.0 + 1e-15, 0.0))
    assert (same.error, same.p) == (0.0, pytest.approx(1.0, abs=0.01))
    assert compare(Term(0.0, 0.0), Term(0.0, 0.0)).p == 1.0
    assert compare(Term(2.0, 0.0), Term(1.0, 0.0)).p_greater == 0.0
    assert compare(Term(1.0, 0.0), Term(2.0, 0.0)).p_greater == 1.0


def test_a_single_repeat_has_no_error() -> None:
    with pytest.raises(InvalidArgument, match="repeats ≥ 2"):
        compare(record(np.array([1.0])), Term(1.0, 0.1))


def test_repr_is_short() -> None:
    assert repr(compare(Term(1 / 3, 0.3), Term(1.0, 0.4))) == "Comparison(-0.6667 ± 0.5, p_greater=0.91, p=0.18)"
