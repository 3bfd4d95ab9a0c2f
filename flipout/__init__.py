"""Stochastic weights for PyTorch: every example of a mini-batch gets its own weight perturbation."""

from . import backend, bayes, errors, es, nn, regularizers, variance
from ._capture import Captured, capture
from ._convert import perturb
from ._freeze import freeze
from ._parameter_groups import parameter_groups
from ._summary import Summary, summary
from ._where import register
from .distributions import (
    Distribution,
    DropConnect,
    Gaussian,
    LearnedDistribution,
    LowRankNormal,
    MeanField,
    MultiplicativeGaussian,
    Rademacher,
)
from .nn.checkpoints import checkpoint
from .nn.contexts import hold, sampling, using
from .nn.held_weights import example_weights
from .schemes import Flipout, Independent, LocalReparam, LowRank, Scheme, Shared

__version__ = "0.3.0"

__all__ = [
    "Captured",
    "Distribution",
    "DropConnect",
    "Flipout",
    "Gaussian",
    "Independent",
    "LearnedDistribution",
    "LocalReparam",
    "LowRank",
    "LowRankNormal",
    "MeanField",
    "MultiplicativeGaussian",
    "Rademacher",
    "Scheme",
    "Shared",
    "Summary",
    "backend",
    "bayes",
    "capture",
    "checkpoint",
    "errors",
    "es",
    "example_weights",
    "freeze",
    "hold",
    "nn",
    "parameter_groups",
    "perturb",
    "register",
    "regularizers",
    "sampling",
    "summary",
    "using",
    "variance",
]
