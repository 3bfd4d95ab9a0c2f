"""Evolution strategies: a whole population of perturbed networks in one batch."""

from . import rl
from .fleet import Fleet, Local
from .population import Population
from .ray import RayFleet
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
    "RayFleet",
    "centered_rank",
    "raw",
    "rl",
    "z_score",
]
