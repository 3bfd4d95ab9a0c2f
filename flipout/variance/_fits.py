"""Fit curves to measured variances, with errors that hold even if they come from few repeats.

Weights made from each point's own error would favour points whose few repeats happen to lie close together. The fit
would then look worse, and its parameters better known, than they are. The weights here come from a model of the spread
of one estimate: relative to the curve, a power of N. If the model is wrong, only precision is lost. The uncertainty of
the result comes from the measured errors, each with repeats − 1 degrees of freedom.
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

# A relative standard error below this is rounding: gradients without noise have an error of 0.
ROUNDING = 1e-12
# The prior of the power of N in the relative variance of an estimate is 0 ± 1/√20. Over N = 1 … 8192 that is a
# factor of e in the spread.
_PRIOR_PRECISION = 20.0
_FIT_ITERATIONS = 5


@dataclass(frozen=True)
class Fit:
    """variance = a + b / N, fitted to one curve by weighted least squares.

    An interval of a is a ± t · a_error, where t is Student's with a_freedom degrees of freedom (Satterthwaite's
    approximation). p is the goodness of fit.
    """

    parameter: str  # name of the Parameter
    scheme: str  # name of the scheme
    a: float  # the part that no batch size removes
    a_error: float  # standard error of a
    b: float  # the part that falls as 1 / N
    b_error: float  # standard error of b
    chi2: float  # sum of the weighted squared residuals; about `freedom` if the form is exact
    freedom: int  # number of batch sizes − 2
    p: float  # probability of a chi2 at least as large if the form is exact
    a_freedom: float  # degrees of freedom of a_error
    b_freedom: float  # degrees of freedom of b_error

    def __repr__(self) -> str:
        a, b = f"({self.a:.4g} ± {self.a_error:.2g})", f"({self.b:.4g} ± {self.b_error:.2g})"
        return f"Fit({self.parameter}, {self.scheme}: {a} + {b} / N, p={self.p:.2g})"


@dataclass(frozen=True)
class Slope:
    """The slope of log variance against log N by plain least squares, with its 90 % interval.

    For a curve that bends it is a mean slope, which depends on the choice of batch sizes.
    """

    parameter: str  # name of the Parameter
    scheme: str  # name of the scheme
    value: float  # −1 if the variance falls as 1 / N
    error: float  # standard error of the slope
    low: float  # lower bound of the interval
    high: float  # upper bound of the interval

    def __repr__(self) -> str:
        return f"Slope({self.parameter}, {self.scheme}: {self.value:.4g}, 90 %: {self.low:.4g} to {self.high:.4g})"


@dataclass(frozen=True)
class VarianceCurve:
    """The records of one Parameter under one scheme, as arrays."""

    parameter: str
    scheme: str
    size: Array
    value: Array
    error: Array
    repeats: Array

    @classmethod
    def of(cls, parameter: str, scheme: str, records: Sequence[Any]) -> "VarianceCurve":
        columns = ([getattr(r, name) for r in records] for name in ("batch_size", "variance", "error", "repeats"))
        curve = cls(parameter, scheme, *(np.array(column, dtype=np.float64) for column in columns))
        if len(np.unique(curve.size)) < 2 or curve.repeats.min() < 2:
            raise InvalidArgument(f"{parameter}, {scheme}: a fit needs two batch sizes and repeats ≥ 2 at each.")
        return curve

    def fit(self) -> Fit:
        """Fit a + b / N. The goodness of fit is Box's: a quadratic form over its expectation is approximately an F.

        In simulations with spreads of 3 to 10 %, p < 0.01 had a probability of 0.7 to 1.5 %. Far out p is too small if
        the spreads differ irregularly: p < 1e-4 had a probability of up to 1e-3.
        """
        columns = np.stack((np.ones_like(self.size), 1 / self.size), 1)
        floor = self.value.max() * 1e-6 or 1.0
        curve = np.maximum(self.value, floor)
        relative = self._relative_spread(curve) / np.sqrt(self.repeats)
        a = b = 0.0
        unit, design, solve = curve, columns, columns.T
        for _ in range(_FIT_ITERATIONS):
            unit = curve * relative
            design = columns / unit[:, None]
            solve = np.linalg.solve(design.T @ design, design.T)
            a, b = (float(coefficient) for coefficient in solve @ (self.value / unit))
            # Data of another form may pull the fitted curve to 0 and below.
            curve = np.maximum(np.clip(a + b / self.size, self.value / 2, self.value * 2), floor)
        squared_errors = (np.maximum(self.error, curve * ROUNDING) / unit) ** 2
        a_error, a_freedom = self._uncertainty(solve[0] ** 2 * squared_errors)
        b_error, b_freedom = self._uncertainty(solve[1] ** 2 * squared_errors)
        chi2, freedom, p = 0.0, len(self.size) - 2, 1.0
        if freedom:
            residuals = (self.value - a - b / self.size) / unit
            projection = np.eye(len(design)) - design @ solve  # onto the residuals
            expected = np.diag(projection) * squared_errors
            ratio = float(residuals @ residuals / expected.sum())
            numerator = float(expected.sum() ** 2 / (projection**2 * np.outer(squared_errors, squared_errors)).sum())
            chi2, p = freedom * ratio, f_tail(ratio, numerator, self._uncertainty(expected)[1])
        names = self.parameter, self.scheme
        return Fit(*names, a, a_error, b, b_error, chi2, freedom, p, a_freedom, b_freedom)

    def slope(self) -> Slope:
        """Fit a line to log variance against log N."""
        if self.value.min() <= 0:
            raise InvalidArgument(f"{self.parameter}, {self.scheme}: a log-log slope needs variances above 0.")
        centred = np.log(self.size) - np.log(self.size).mean()
        solve = centred / (centred**2).sum()
        value = float(solve @ np.log(self.value))
        squared_errors = np.maximum(self.error / self.value, ROUNDING) ** 2
        error, freedom = self._uncertainty(solve**2 * squared_errors)
        half_width = t_quantile(0.95, freedom) * error
        return Slope(self.parameter, self.scheme, value, error, value - half_width, value + half_width)

    def _relative_spread(self, curve: Array) -> Array:
        """Return the relative spread of one estimate, up to a factor: a power of N, by regression of its logarithm."""
        squared = self.repeats * (self.error / curve) ** 2
        squared = np.maximum(squared, squared.mean() * 1e-3 or 1.0)
        half = torch.from_numpy(self.repeats - 1) / 2
        weight = 1 / torch.special.polygamma(1, half).numpy()  # log χ² has this variance,
        shift = (torch.special.digamma(half) - half.log()).numpy()  # and log (χ²/ν) this mean
        centred = np.log(self.size) - np.average(np.log(self.size), weights=weight)
        power = (weight * centred * (np.log(squared) - shift)).sum()
        power /= (weight * centred**2).sum() + _PRIOR_PRECISION
        return self.size ** (power / 2)

    def _uncertainty(self, summands: Array) -> tuple[float, float]:
        """Return the root of a sum of estimated squared errors, and its degrees of freedom after Satterthwaite.

        Both moments of the sum are estimated without bias: the square of an estimate with ν degrees of freedom is too
        large by the factor (ν + 2)/ν.
        """
        total = summands.sum()
        return float(np.sqrt(total)), float(total**2 / (summands**2 / (self.repeats + 1)).sum() - 2)
