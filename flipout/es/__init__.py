"""Evolution strategies: a whole population of perturbed networks in one batch."""

from . import rl
from ._fleet import Fleet, Local
from ._generation import Generation
from ._population import Population
from ._ray_fleet import RayFleet
from ._shaping import SHAPINGS, centered_rank, raw, z_score
from ._strategy import EvolutionStrategy

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
