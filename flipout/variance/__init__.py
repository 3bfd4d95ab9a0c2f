"""How the variance of gradients falls with the batch size, on your own model."""

from .compare import Comparison, compare
from .fits import Fit, Slope
from .measure import measure
from .records import Measurements, Record
from .theorem import Decomposition, Term, decompose

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
