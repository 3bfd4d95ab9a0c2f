"""HOW the noise is applied: arithmetic only."""

from ..backend import offer
from .base import Op
from .conv import Conv
from .linear import Linear
from .simple import SimpleOp

offer(f"{__name__}.triton")

__all__ = ["Conv", "Linear", "Op", "SimpleOp"]
