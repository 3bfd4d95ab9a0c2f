"""How the variance of gradients falls with the batch size, on your own model."""

from ._compare import Comparison, compare
from ._fits import Fit, Slope
from ._measure import measure
from ._records import Measurements, Record
from ._theorem import Decomposition, Term, decompose

__all__ = [
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
