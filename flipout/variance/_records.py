"""Tidy records of measured variances: intervals, curves, files, a figure."""

import csv
import io
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from .._files import write_atomically
from ..errors import InvalidArgument
from ._fits import Curve, Fit, Slope


@dataclass(frozen=True)
class Record:
    """The gradient variance of one Parameter (or gate), averaged over its entries, and its 90 % interval."""

    parameter: str  # its name
    scheme: str  # its name
    batch_size: int  # N
    variance: float  # the mean over the repeats
    error: float  # its standard error
    low: float  # of the interval
    high: float  # of the interval
    draws: int  # gradients in each repeat
    repeats: int  # independent estimates
    bases: int = 1  # ΔŴ in a batch
    data_term: float | None = None  # of the paper's equation (6); None where it was not asked for
    estimation_term: float | None = None  # likewise

    @property
    def value(self) -> float:
        """The variance, under the name that `compare` knows."""
        return self.variance

    @property
    def freedom(self) -> int:
        """Of the error."""
        return self.repeats - 1


class Measurements:
    """What `measure` found: a sequence of `Record`s, with its fits, files and figure."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = tuple(records)

    def __iter__(self):
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Measurements) and self.records == other.records

    def __hash__(self) -> int:
        return hash(self.records)

    def __repr__(self) -> str:
        named = {key: sorted({getattr(r, key) for r in self.records}) for key in ("parameter", "scheme", "batch_size")}
        return f"Measurements({len(self)} records; {', '.join(f'{key}: {value}' for key, value in named.items())})"

    def select(self, **wanted: Any) -> "Measurements":
        """The records with these values: select(parameter="0.weight", scheme="flipout"). A value that no record has is
        refused; a combination that none has gives no records."""
        unknown = wanted.keys() - {field.name for field in fields(Record)}
        if unknown:
            known = ", ".join(field.name for field in fields(Record))
            raise InvalidArgument(f"select: {', '.join(unknown)} given; a record has {known}.")
        for name, value in wanted.items():
            there = dict.fromkeys(getattr(record, name) for record in self.records)
            if there and value not in there:
                raise InvalidArgument(f"select({name}={value!r}): no record has it; there are {[*there]}.")
        return Measurements(r for r in self.records if all(getattr(r, k) == v for k, v in wanted.items()))

    def curves(self) -> dict[tuple[str, str], "Measurements"]:
        """(Parameter, scheme) → its records by batch size."""
        found: dict[tuple[str, str], list[Record]] = {}
        for record in self.records:
            found.setdefault((record.parameter, record.scheme), []).append(record)
        return {name: Measurements(sorted(some, key=lambda r: r.batch_size)) for name, some in found.items()}

    def fit(self) -> list[Fit]:
        """a + b / N through each curve."""
        return [Curve.of(*name, curve.records).fit() for name, curve in self.curves().items()]

    def slope(self) -> list[Slope]:
        """The log-log slope of each curve over all its batch sizes: −1 where the variance falls as 1/N."""
        return [Curve.of(*name, curve.records).slope() for name, curve in self.curves().items()]

    def to_rows(self) -> list[dict[str, Any]]:
        """A dictionary for each record."""
        return [asdict(record) for record in self.records]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """A line for each record, after one with their names."""
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, [field.name for field in fields(Record)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.to_rows())
        write_atomically(path, text.getvalue())

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """What `from_json` reads."""
        write_atomically(path, json.dumps(self.to_rows(), indent=1))

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> "Measurements":
        """What `to_json` wrote, a run's `measurements.json` say."""
        return cls(Record(**row) for row in json.loads(Path(path).read_text()))

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each record; needs pandas."""
        import pandas as pd  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]

        return pd.DataFrame(self.to_rows())

    def plot(self, path: str | os.PathLike[str] | None = None, predictions: Any = None) -> Any:
        """A log-log figure with intervals, fits and, from `decompose`, predictions; needs matplotlib."""
        from ._figures import figure

        return figure(self, path, predictions)
