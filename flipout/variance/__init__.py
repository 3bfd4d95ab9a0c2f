"""How the variance of gradients falls with the batch size, on your own model."""

from .measure import measure
from .records import Fit, Measurements, Record
from .theorem import Decomposition, Term, decompose

__all__ = ["Decomposition", "Fit", "Measurements", "Record", "Term", "decompose", "measure"]
