"""All text models of transformers that can be built small: never silently wrong. The table is causal.csv."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from .sweep import main

TABLE = Path(__file__).with_name("causal.csv")


AS_THEY_COME, SHOWN = "outcome", "outcome with example_inputs"


def outcomes(path: Path, column: str) -> Counter[str]:
    """Count the outcomes of a table."""
    with path.open() as file:
        return Counter(row[column] for row in csv.DictReader(file))


@pytest.mark.parametrize(("column", "least"), [(AS_THEY_COME, 0.85), (SHOWN, 0.95)])
def test_nothing_in_the_table_is_wrong(column: str, least: float) -> None:
    counted = outcomes(TABLE, column)
    assert set(counted) <= {"right", "refused", "not built"}
    assert counted["right"] >= least * (counted["right"] + counted["refused"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_table_is_made_again(tmp_path: Path) -> None:
    main(tmp_path / "causal.csv")
    for column in (AS_THEY_COME, SHOWN):
        assert outcomes(tmp_path / "causal.csv", column) == outcomes(TABLE, column)
