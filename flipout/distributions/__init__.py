"""WHAT noise: ΔW given the mean W̄."""

from .base import Distribution, LearnedDistribution
from .dropconnect import DropConnect, Rademacher
from .gaussian import Gaussian, MultiplicativeGaussian
from .low_rank_normal import LowRankNormal
from .mean_field import MeanField

__all__ = [
    "Distribution",
    "DropConnect",
    "Gaussian",
    "LearnedDistribution",
    "LowRankNormal",
    "MeanField",
    "MultiplicativeGaussian",
    "Rademacher",
]
