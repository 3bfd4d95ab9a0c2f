"""Measure how the variance of your model's gradients falls with the batch size."""

from ._compare import Comparison, compare
from ._decompose import decompose
from ._fits import Fit, Slope
from ._measure import Antithetic, measure
from ._records import Measurements, Record
from ._theorem import Decomposition, Term

__all__ = [
    "Antithetic",
    "Comparison",
    "Decomposition",
    "Fit",
    "Measurements",
    "Record",
    "Slope",
    "Term",
    "compare",
    "decompose",
    "measure",
]
