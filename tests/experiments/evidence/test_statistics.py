"""The statistics of the experiments are those of flipout.variance."""

import math

import pytest

from flipout import _student as student
from flipout.experiments.evidence import statistics


@pytest.mark.parametrize("probability", [0.05, 0.5, 0.95, 0.9995, 1 - 1e-3 / 120])
@pytest.mark.parametrize("freedom", [1, 2, 3.7, 9, 199, math.inf])
def test_quantiles_of_t(probability, freedom):
    expected = student.t_quantile(probability, freedom)
    assert statistics.t_quantile(probability, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("above", "below"), [(9, 9), (3, 7.5), (199, 59)])
def test_quantiles_and_tail_of_f(above, below):
    assert statistics.f_quantile(0.999, above, below) == pytest.approx(student.f_quantile(0.999, above, below))
    assert statistics.f_tail(1.3, above, below) == pytest.approx(student.f_tail(1.3, above, below))


@pytest.mark.parametrize("values", [[2.0], [1.0, 2.0, 4.0], [3.0, 3.0]])
def test_intervals(values):
    assert statistics.interval(values) == pytest.approx(student.interval(values))
