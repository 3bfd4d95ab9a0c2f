"""Intervals, fits and files."""

import math

import numpy as np
import pytest
from scipy import stats

from flipout.variance import Measurements, Record
from flipout.variance.records import interval, t_quantile


@pytest.mark.parametrize("freedom", [1, 2, 4, 49, 500])
@pytest.mark.parametrize("probability", [0.05, 0.5, 0.95, 0.995])
def test_t_quantile(freedom: int, probability: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-5, abs=1e-9)


def test_interval() -> None:
    values = [1.0, 2.0, 4.0, 7.0]
    mean, error, low, high = interval(values)
    assert (low, high) == pytest.approx(stats.t.interval(0.9, 3, mean, error))
    assert interval([3.0]) == (3.0, math.inf, -math.inf, math.inf)


def record(size: int, variance: float, error: float, scheme: str = "flipout") -> Record:
    return Record("w", scheme, size, variance, error, variance - error, variance + error, 10, 5)


def test_fit_recovers_the_form_and_rejects_another() -> None:
    rng = np.random.default_rng(0)
    sizes = [1, 2, 4, 8, 16, 32, 64]
    truth = [0.3 + 5 / n for n in sizes]
    exact = Measurements(record(n, v + 0.01 * v * rng.normal(), 0.01 * v) for n, v in zip(sizes, truth, strict=True))
    (fit,) = exact.fit()
    assert abs(fit.a - 0.3) < 4 * fit.a_error
    assert abs(fit.b - 5) < 4 * fit.b_error
    assert fit.p > 1e-3
    (wrong,) = Measurements(record(n, 5 / n**0.5, 0.01) for n in sizes).fit()
    assert wrong.p < 1e-6


def test_files(tmp_path) -> None:
    made = Measurements([record(1, 2.0, 0.1), record(4, 0.5, 0.1), record(1, 2.0, 0.1, "shared")])
    made.to_json(tmp_path / "m.json")
    assert Measurements.from_json(tmp_path / "m.json").records == made.records
    made.to_csv(tmp_path / "m.csv")
    assert len((tmp_path / "m.csv").read_text().splitlines()) == 4
    assert len(made.select(scheme="flipout", batch_size=4)) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.csv", "m.json"]


def test_figure(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    made = Measurements(record(n, 1 / n, 0.1 / n, scheme) for n in (1, 4, 16) for scheme in ("shared", "flipout"))
    made.plot(tmp_path / "f.png")
    assert (tmp_path / "f.png").stat().st_size > 1000
