"""Tidy records of measured variances: intervals, fits, files, a figure."""

import csv
import io
import json
import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch


def t_quantile(probability: float, freedom: int) -> float:
    """Student's t: with t = √ν tan θ its density is proportional to cos^(ν−1) θ."""
    angle = np.linspace(-np.pi / 2, np.pi / 2, 200_001)
    density = np.cos(angle) ** (freedom - 1) if freedom > 1 else np.ones_like(angle)
    mass = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2)))
    return float(math.sqrt(freedom) * np.tan(np.interp(probability, mass / mass[-1], angle)))


def interval(values: Iterable[float], level: float = 0.9) -> tuple[float, float, float, float]:
    """Mean, standard error, and the bounds of the t interval; infinite bounds for a single value."""
    array = np.asarray(list(values), dtype=np.float64)
    mean = float(array.mean())
    if len(array) < 2:
        return mean, math.inf, -math.inf, math.inf
    error = float(array.std(ddof=1)) / math.sqrt(len(array))
    half = t_quantile((1 + level) / 2, len(array) - 1) * error
    return mean, error, mean - half, mean + half


@dataclass(frozen=True)
class Record:
    """The gradient variance of one Parameter (or gate), averaged over its entries, and its 90 % interval."""

    parameter: str
    scheme: str
    batch_size: int
    variance: float
    error: float
    low: float
    high: float
    draws: int
    repeats: int
    bases: int = 1
    data_term: float | None = None  # of the paper's equation (6); None where it was not asked for
    estimation_term: float | None = None


@dataclass(frozen=True)
class Fit:
    """variance = a + b / N, by least squares weighted with the errors, and how well it fits."""

    parameter: str
    scheme: str
    a: float
    a_error: float
    b: float
    b_error: float
    chi2: float
    freedom: int
    p: float  # of a χ² at least as large, were the form exact


class Measurements:
    def __init__(self, records: Iterable[Record]) -> None:
        self.records = tuple(records)

    def __iter__(self):
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def select(self, **wanted: Any) -> "Measurements":
        """The records with these values: select(parameter="0.weight", scheme="flipout")."""
        return Measurements(r for r in self.records if all(getattr(r, k) == v for k, v in wanted.items()))

    def curves(self) -> dict[tuple[str, str], "Measurements"]:
        """(Parameter, scheme) → its records by batch size."""
        names = dict.fromkeys((r.parameter, r.scheme) for r in self.records)
        return {
            (parameter, scheme): Measurements(
                sorted(self.select(parameter=parameter, scheme=scheme), key=lambda r: r.batch_size)
            )
            for parameter, scheme in names
        }

    def fit(self) -> list[Fit]:
        return [_fit(*name, curve.records) for name, curve in self.curves().items()]

    def to_rows(self) -> list[dict[str, Any]]:
        return [asdict(record) for record in self.records]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, [field.name for field in fields(Record)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.to_rows())
        write_whole(path, text.getvalue())

    def to_json(self, path: str | os.PathLike[str]) -> None:
        write_whole(path, json.dumps(self.to_rows(), indent=1))

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> "Measurements":
        return cls(Record(**row) for row in json.loads(Path(path).read_text()))

    def to_pandas(self) -> Any:
        import pandas as pd  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]

        return pd.DataFrame(self.to_rows())

    def plot(self, path: str | os.PathLike[str] | None = None, predictions: Any = None) -> Any:
        """A log-log figure with intervals, fits and, from `decompose`, predictions; needs matplotlib."""
        from .figures import figure

        return figure(self, path, predictions)


def _fit(parameter: str, scheme: str, records: tuple[Record, ...]) -> Fit:
    size = np.array([r.batch_size for r in records], dtype=np.float64)
    value = np.array([r.variance for r in records])
    error = np.array([r.error for r in records])
    if len(records) < 2 or not np.isfinite(error).all():
        raise ValueError(f"{parameter}, {scheme}: a fit needs two batch sizes and repeats ≥ 2 at each.")
    form = np.stack((np.ones_like(size), 1 / size), 1) / error[:, None]
    covariance = np.linalg.inv(form.T @ form)
    a, b = covariance @ form.T @ (value / error)
    chi2, freedom = float((((a + b / size - value) / error) ** 2).sum()), len(records) - 2
    halves = torch.tensor([freedom / 2, chi2 / 2], dtype=torch.float64)
    p = float(torch.special.gammaincc(*halves)) if freedom else 1.0
    a_error, b_error = np.sqrt(np.diag(covariance))
    return Fit(parameter, scheme, float(a), float(a_error), float(b), float(b_error), chi2, freedom, p)


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """The file, or what was there before; never a part."""
    target = Path(path)
    fresh = target.with_name(target.name + ".new")
    fresh.write_text(text)
    fresh.replace(target)
