"""Curves through measured variances, with errors that stay honest where they come from few repeats.

Weights made from each point's own error would favour the points whose few repeats happen to lie close together; the
fit would then look worse, and its parameters better known, than they are. So the weights follow from a model of the
spread of one estimate: relative to the curve, a power of N. It need not be true; where it is not, precision is lost and
nothing else. How uncertain the result is, the measured errors say, each with repeats − 1 degrees of freedom.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._student import f_tail, t_quantile
from ..errors import InvalidArgument

Array = NDArray[np.float64]

# Of a value: a standard error below it is rounding. Deterministic gradients have an error of 0.
ROUNDING = 1e-12
# A priori the power of N in the relative variance of an estimate is 0 ± 1/√20: over N = 1 … 8192 a factor e in spread.
_TOWARDS_ZERO = 20.0


@dataclass(frozen=True)
class Fit:
    """variance = a + b / N by weighted least squares, and how well it fits.

    An interval is a ± t · a_error, with Student's t of a_freedom degrees of freedom (Satterthwaite's approximation).
    """

    parameter: str  # its name
    scheme: str  # its name
    a: float  # what no batch size takes away
    a_error: float  # standard error of a
    b: float  # what falls as 1 / N
    b_error: float  # standard error of b
    chi2: float  # weighted squares of the residuals; `freedom` is what the errors make one expect
    freedom: int  # batch sizes − 2
    p: float  # of a chi2 at least as large, were the form exact
    a_freedom: float  # degrees of freedom of a_error
    b_freedom: float  # degrees of freedom of b_error


@dataclass(frozen=True)
class Slope:
    """Of log variance against log N by plain least squares, with its 90 % interval; for a curve that bends, a mean
    slope, which the batch sizes alone decide."""

    parameter: str  # its name
    scheme: str  # its name
    value: float  # −1 where the variance falls as 1 / N
    error: float  # its standard error
    low: float  # of the interval
    high: float  # of the interval


@dataclass(frozen=True)
class Curve:
    """The records of one Parameter under one scheme."""

    parameter: str
    scheme: str
    size: Array
    value: Array
    error: Array
    repeats: Array

    @classmethod
    def of(cls, parameter: str, scheme: str, records: Sequence[Any]) -> "Curve":
        columns = ([getattr(r, name) for r in records] for name in ("batch_size", "variance", "error", "repeats"))
        made = cls(parameter, scheme, *(np.array(column, dtype=np.float64) for column in columns))
        if len(np.unique(made.size)) < 2 or made.repeats.min() < 2:
            raise InvalidArgument(f"{parameter}, {scheme}: a fit needs two batch sizes and repeats ≥ 2 at each.")
        return made

    def fit(self) -> Fit:
        """The goodness of fit is Box's: a quadratic form over its estimated expectation is approximately an F.

        In simulations with spreads of 3 to 10 %, p < 0.01 had a probability of 0.7 to 1.5 %; far out, where spreads
        differ irregularly, p is too small: p < 1e-4 had up to 1e-3.
        """
        columns = np.stack((np.ones_like(self.size), 1 / self.size), 1)
        least = self.value.max() * 1e-6 or 1.0
        curve = np.maximum(self.value, least)
        share = self.spread(curve) / np.sqrt(self.repeats)
        a = b = 0.0
        unit, form, solve = curve, columns, columns.T
        for _ in range(5):
            unit = curve * share
            form = columns / unit[:, None]
            solve = np.linalg.solve(form.T @ form, form.T)
            a, b = (float(one) for one in solve @ (self.value / unit))
            # What has another form may draw the fitted curve to 0 and below.
            curve = np.maximum(np.clip(a + b / self.size, self.value / 2, self.value * 2), least)
        squared = (np.maximum(self.error, curve * ROUNDING) / unit) ** 2
        a_error, a_freedom = self.uncertainty(solve[0] ** 2 * squared)
        b_error, b_freedom = self.uncertainty(solve[1] ** 2 * squared)
        chi2, freedom, p = 0.0, len(self.size) - 2, 1.0
        if freedom:
            residual = (self.value - a - b / self.size) / unit
            left = np.eye(len(form)) - form @ solve
            parts = np.diag(left) * squared
            ratio = float(residual @ residual / parts.sum())
            above = float(parts.sum() ** 2 / (left**2 * np.outer(squared, squared)).sum())
            chi2, p = freedom * ratio, f_tail(ratio, above, self.uncertainty(parts)[1])
        names = self.parameter, self.scheme
        return Fit(*names, a, a_error, b, b_error, chi2, freedom, p, a_freedom, b_freedom)

    def slope(self) -> Slope:
        if self.value.min() <= 0:
            raise InvalidArgument(f"{self.parameter}, {self.scheme}: a log-log slope needs variances above 0.")
        place = np.log(self.size) - np.log(self.size).mean()
        solve = place / (place**2).sum()
        value = float(solve @ np.log(self.value))
        squared = np.maximum(self.error / self.value, ROUNDING) ** 2
        error, freedom = self.uncertainty(solve**2 * squared)
        half = t_quantile(0.95, freedom) * error
        return Slope(self.parameter, self.scheme, value, error, value - half, value + half)

    def spread(self, curve: Array) -> Array:
        """The relative spread of one estimate, but for a factor: a power of N, by regression of its logarithm."""
        squared = self.repeats * (self.error / curve) ** 2
        squared = np.maximum(squared, squared.mean() * 1e-3 or 1.0)
        half = torch.from_numpy(self.repeats - 1) / 2
        weight = 1 / torch.special.polygamma(1, half).numpy()  # log χ² has this variance,
        shift = (torch.special.digamma(half) - half.log()).numpy()  # and log (χ²/ν) this mean
        place = np.log(self.size) - np.average(np.log(self.size), weights=weight)
        power = (weight * place * (np.log(squared) - shift)).sum() / ((weight * place**2).sum() + _TOWARDS_ZERO)
        return self.size ** (power / 2)

    def uncertainty(self, parts: Array) -> tuple[float, float]:
        """The root of a sum of estimated squared errors, and its degrees of freedom after Satterthwaite.

        Both moments of the sum are estimated without bias: the square of an estimate with ν is (ν + 2)/ν too large.
        """
        total = parts.sum()
        return float(np.sqrt(total)), float(total**2 / (parts**2 / (self.repeats + 1)).sum() - 2)
