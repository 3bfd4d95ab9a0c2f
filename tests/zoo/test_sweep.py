"""All text models of transformers that can be built small: never silently wrong. The table is causal.csv."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from .sweep import main

TABLE = Path(__file__).with_name("causal.csv")


def outcomes(path: Path) -> Counter[str]:
    """Count the outcomes of a table."""
    with path.open() as file:
        return Counter(row["outcome"] for row in csv.DictReader(file))


def test_nothing_in_the_table_is_wrong() -> None:
    counted = outcomes(TABLE)
    assert set(counted) <= {"right", "refused", "not built"}
    assert counted["right"] > 0.85 * (counted["right"] + counted["refused"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_table_is_made_again(tmp_path: Path) -> None:
    main(tmp_path / "causal.csv")
    assert outcomes(tmp_path / "causal.csv") == outcomes(TABLE)
