"""Records of measured variances: select, fit, plot and save them."""

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from .._files import read_plain, write_atomically
from .._html import html_table
from .._typed import Mismatch, parse_json, typed
from ..errors import DataError, InvalidArgument
from ._fits import Fit, Slope, VarianceCurve
from ._theorem import Decomposition

_MAX_LISTED = 4  # names in a repr
_MAX_ROWS = 24  # records that a notebook shows


@dataclass(frozen=True)
class Record:
    """The gradient variance of one Parameter, averaged over its entries, with its 90 % interval."""

    parameter: str  # name of the Parameter, with the gate of an LSTM's weights in brackets
    scheme: str  # name of the scheme, with options that differ from their defaults
    batch_size: int  # N
    variance: float  # mean over the repeats
    error: float  # standard error of the variance
    low: float  # lower bound of the interval
    high: float  # upper bound of the interval
    draws: int  # gradients in each repeat
    repeats: int  # independent estimates
    bases: int = 1  # base perturbations ΔŴ per batch
    data_term: float | None = None  # data term of the paper's equation (6), with `split=True`
    estimation_term: float | None = None  # estimation term of the same equation, with `split=True`

    def __repr__(self) -> str:
        bounds = f"{self.low:.4g} to {self.high:.4g}"
        return f"Record({self.parameter}, {self.scheme}, N={self.batch_size}: {self.variance:.4g}, 90 %: {bounds})"

    @property
    def value(self) -> float:
        """The variance, under the name that `compare` reads."""
        return self.variance

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the error."""
        return self.repeats - 1


class Measurements:
    """The result of `measure`: a sequence of `Record`s, with their fits, files and figure."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = tuple(records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Measurements) and self.records == other.records

    def __hash__(self) -> int:
        return hash(self.records)

    def __repr__(self) -> str:
        columns = {"parameters": "parameter", "schemes": "scheme", "batch sizes": "batch_size"}
        listed = "; ".join(f"{label}: {_listed(self._values(column))}" for label, column in columns.items())
        return f"Measurements({len(self)} records; {listed})"

    def _repr_html_(self) -> str:
        shown = self.records[:_MAX_ROWS]
        columns = {
            "parameter": [record.parameter for record in shown],
            "scheme": [record.scheme for record in shown],
            "batch size": [str(record.batch_size) for record in shown],
            "variance": [f"{record.variance:.4g}" for record in shown],
            "90 % interval": [f"{record.low:.4g} to {record.high:.4g}" for record in shown],
        }
        more = len(self) - len(shown)
        return html_table(repr(self), columns, [f"… and {more} more"] if more else [])

    def select(self, **wanted: Any) -> "Measurements":
        """Select the records with these values.

        Args:
            **wanted: Fields of `Record` and their values.

        Returns:
            The records that have all of these values. It may be empty.

        Raises:
            InvalidArgument: A record has no such field, or no record has such a value.

        Example:
            >>> measured.select(parameter="0.weight", scheme="flipout")
        """
        columns = [field.name for field in fields(Record)]
        unknown = [name for name in wanted if name not in columns]
        if unknown:
            raise InvalidArgument(f"select: {', '.join(unknown)} given; a record has {', '.join(columns)}.")
        for name, value in wanted.items():
            present = self._values(name)
            if present and value not in present:
                raise InvalidArgument(
                    f"select({name}={value!r}): no record has it; there are {_listed([*map(repr, present)])}."
                )
        return Measurements(r for r in self.records if all(getattr(r, k) == v for k, v in wanted.items()))

    def curves(self) -> dict[tuple[str, str], "Measurements"]:
        """Return a curve for each (Parameter, scheme): its records in order of batch size."""
        found: dict[tuple[str, str], list[Record]] = {}
        for record in self.records:
            found.setdefault((record.parameter, record.scheme), []).append(record)
        return {key: Measurements(sorted(curve, key=lambda r: r.batch_size)) for key, curve in found.items()}

    def fit(self) -> list[Fit]:
        """Fit variance = a + b / N to each curve."""
        return [VarianceCurve.of(*key, curve.records).fit() for key, curve in self.curves().items()]

    def slope(self) -> list[Slope]:
        """Return the log-log slope of each curve over all its batch sizes: −1 if the variance falls as 1/N."""
        return [VarianceCurve.of(*key, curve.records).slope() for key, curve in self.curves().items()]

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each record."""
        return [asdict(record) for record in self.records]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a header and a line for each record.

        Args:
            path: The file, which is replaced.
        """
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, [field.name for field in fields(Record)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.to_rows())
        write_atomically(path, text.getvalue())

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write a file that `from_json` reads.

        Args:
            path: The file, which is replaced.
        """
        write_atomically(path, json.dumps(self.to_rows(), indent=1))

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> "Measurements":
        """Read a file that `to_json` wrote, such as the `measurements.json` of a run.

        Args:
            path: The file.

        Raises:
            DataError: It is something else. The message names the field, what was found and what was expected.
        """
        try:
            return cls(typed(parse_json(read_plain(Path(path), follow=True)), list[Record]))
        except (OSError, Mismatch) as error:
            raise DataError(f"{path} has no measurements ({error}): give a file that to_json wrote.") from error

    def to_pandas(self) -> Any:
        """Return a DataFrame with a row for each record. Needs pandas."""
        import pandas as pd  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]

        return pd.DataFrame(self.to_rows())

    def plot(
        self, path: str | os.PathLike[str] | None = None, predictions: Iterable[Decomposition] | None = None
    ) -> Any:
        """Plot variance against batch size, log-log, with intervals and fits. Needs matplotlib.

        Args:
            path: File to write the figure to.
            predictions: The result of `decompose`. Its predictions are drawn as crosses.

        Returns:
            The matplotlib figure.

        Raises:
            InvalidArgument: There are no records.
            MissingExtra: matplotlib is not installed.

        Example:
            >>> measured.plot("variance.svg", predictions=found)
        """
        from ._figures import figure

        return figure(self, path, predictions)

    def _values(self, column: str) -> list[Any]:
        """Return the different values of a column, in order of appearance."""
        return [*dict.fromkeys(getattr(record, column) for record in self.records)]


def _listed(values: list[Any]) -> str:
    shown = ", ".join(map(str, values[:_MAX_LISTED]))
    more = len(values) - _MAX_LISTED
    return f"{shown} and {more} more" if more > 0 else shown
