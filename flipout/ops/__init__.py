"""HOW it is computed: arithmetic only."""

from ..backend import offer

offer(f"{__name__}.triton")
