"""Intervals, curves and files."""

import math

import pytest
from scipy import stats

from flipout._student import interval
from flipout.variance import Measurements, Record


def test_interval() -> None:
    values = [1.0, 2.0, 4.0, 7.0]
    mean, error, low, high = interval(values)
    assert (low, high) == pytest.approx(stats.t.interval(0.9, 3, mean, error))
    assert interval([3.0]) == (3.0, math.inf, -math.inf, math.inf)


def record(size: int, variance: float, error: float, scheme: str = "flipout") -> Record:
    return Record("w", scheme, size, variance, error, variance - error, variance + error, 10, 5)


def test_curves() -> None:
    made = Measurements([record(4, 0.5, 0.1), record(1, 3.0, 0.1, "shared"), record(1, 2.0, 0.1)])
    curves = {name: [r.batch_size for r in curve] for name, curve in made.curves().items()}
    assert curves == {("w", "flipout"): [1, 4], ("w", "shared"): [1]}


def test_a_record_is_an_estimate() -> None:
    made = record(4, 0.5, 0.1)
    assert (made.value, made.error, made.freedom) == (0.5, 0.1, 4)


def test_files(tmp_path) -> None:
    made = Measurements([record(1, 2.0, 0.1), record(4, 0.5, 0.1), record(1, 2.0, 0.1, "shared")])
    made.to_json(tmp_path / "m.json")
    assert Measurements.from_json(tmp_path / "m.json").records == made.records
    made.to_csv(tmp_path / "m.csv")
    assert len((tmp_path / "m.csv").read_text().splitlines()) == 4
    assert [len(made.select(scheme=scheme, batch_size=4)) for scheme in ("flipout", "shared")] == [1, 0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.csv", "m.json"]


def test_figure(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    made = Measurements(record(n, 1 / n, 0.1 / n, scheme) for n in (1, 4, 16) for scheme in ("shared", "flipout"))
    made.plot(tmp_path / "f.png")
    assert (tmp_path / "f.png").stat().st_size > 1000
