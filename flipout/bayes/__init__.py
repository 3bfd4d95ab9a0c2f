"""Variational Bayes: priors and the KL."""

from ..distributions.prior import ClosedForm, Prior, Sampled
from .kl import kl, kl_terms
from .priors import Laplace, LogUniform, Normal, ScaleMixture

__all__ = [
    "ClosedForm",
    "Laplace",
    "LogUniform",
    "Normal",
    "Prior",
    "Sampled",
    "ScaleMixture",
    "kl",
    "kl_terms",
]
