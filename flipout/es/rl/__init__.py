"""Policies: the fitness of a member is its return in an environment."""

from ._episodes import Episodes
from ._normalizer import Normalizer

__all__ = ["Episodes", "Normalizer"]
