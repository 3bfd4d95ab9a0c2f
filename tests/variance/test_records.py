"""Records: curves, selections, files and short reprs."""

import pytest

from flipout.errors import InvalidArgument
from flipout.variance import Measurements, Record


def record(size: int, variance: float, error: float, scheme: str = "flipout") -> Record:
    return Record("w", scheme, size, variance, error, variance - error, variance + error, 10, 5)


def test_curves() -> None:
    measured = Measurements([record(4, 0.5, 0.1), record(1, 3.0, 0.1, "shared"), record(1, 2.0, 0.1)])
    curves = {key: [r.batch_size for r in curve] for key, curve in measured.curves().items()}
    assert curves == {("w", "flipout"): [1, 4], ("w", "shared"): [1]}


def test_a_record_is_an_estimate() -> None:
    estimate = record(4, 0.5, 0.1)
    assert (estimate.value, estimate.error, estimate.freedom) == (0.5, 0.1, 4)


def test_files(tmp_path) -> None:
    measured = Measurements([record(1, 2.0, 0.1), record(4, 0.5, 0.1), record(1, 2.0, 0.1, "shared")])
    measured.to_json(tmp_path / "m.json")
    assert Measurements.from_json(tmp_path / "m.json").records == measured.records
    measured.to_csv(tmp_path / "m.csv")
    assert len((tmp_path / "m.csv").read_text().splitlines()) == 4
    assert [len(measured.select(scheme=scheme, batch_size=4)) for scheme in ("flipout", "shared")] == [1, 0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.csv", "m.json"]


def test_reprs_are_short() -> None:
    third = Record("0.weight", "flipout", 64, 1 / 3, 1 / 70, 1 / 3 - 1 / 30, 1 / 3 + 1 / 30, 200, 5)
    assert repr(third) == "Record(0.weight, flipout, N=64: 0.3333, 90 %: 0.3 to 0.3667)"
    measured = Measurements(record(n, 1 / n, 0.1 / n) for n in range(1, 100))
    assert repr(measured) == (
        "Measurements(99 records; parameters: w; schemes: flipout; batch sizes: 1, 2, 3, 4 and 95 more)"
    )


def test_a_refusal_lists_few_values() -> None:
    with pytest.raises(InvalidArgument, match=r"batch_size=0\): no record has it; there are 1, 2, 3, 4 and 5 more\.$"):
        Measurements(record(n, 1 / n, 0.1 / n) for n in range(1, 10)).select(batch_size=0)
