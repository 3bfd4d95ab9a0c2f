"""HOW the noise is applied: arithmetic only."""

from ..backend import offer

offer(f"{__name__}.triton")
