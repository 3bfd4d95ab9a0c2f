"""Evolution strategies: a whole population of perturbed networks in one batch."""

from . import rl, text
from ._adapter import Adapter
from ._fleet import Fleet, Local
from ._generate import Generated
from ._generation import Generation
from ._population import Population
from ._ray_fleet import RayFleet
from ._shaping import SHAPINGS, centered_rank, raw, z_score
from ._strategy import EvolutionStrategy

__all__ = [
    "SHAPINGS",
    "Adapter",
    "EvolutionStrategy",
    "Fleet",
    "Generated",
    "Generation",
    "Local",
    "Population",
    "RayFleet",
    "centered_rank",
    "raw",
    "rl",
    "text",
    "z_score",
]
