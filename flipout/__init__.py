"""Stochastic weights for PyTorch: every example of a mini-batch gets its own weight perturbation."""

from . import backend, bayes, errors, es, nn, peft, regularizers, testing, variance
from ._capture import Captured, capture
from ._convert import perturb
from ._freeze import freeze
from ._parameter_groups import parameter_groups
from ._progress import Progress, progress
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
from .schemes import Flipout, Independent, LocalReparam, LowRank, RankOne, Scheme, Shared

__version__ = "0.4.0"

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
    "Progress",
    "Rademacher",
    "RankOne",
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
    "peft",
    "perturb",
    "progress",
    "register",
    "regularizers",
    "sampling",
    "summary",
    "testing",
    "using",
    "variance",
]
