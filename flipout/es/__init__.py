"""Evolution strategies: a whole population of perturbed networks in one batch."""

from .fleet import Fleet, Local
from .population import Population
from .records import Generation
from .shaping import SHAPINGS, centered_rank, raw, z_score
from .strategy import EvolutionStrategy

__all__ = [
    "SHAPINGS",
    "EvolutionStrategy",
    "Fleet",
    "Generation",
    "Local",
    "Population",
    "centered_rank",
    "raw",
    "z_score",
]
