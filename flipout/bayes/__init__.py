"""Variational Bayes: priors, the KL and the evidence lower bound."""
from ..distributions.prior import ClosedForm, Prior, Sampled
from . import likelihoods
from .elbo import ELBO, Terms, warm_up
from .guard import Guard, Skipped
from .kl import kl, kl_terms
from .priors import Laplace, LogUniform, Normal, ScaleMixture

__all__ = [
    "ELBO",
    "ClosedForm",
    "Guard",
    "Laplace",
    "LogUniform",
    "Normal",
    "Prior",
    "Sampled",
    "ScaleMixture",
    "Skipped",
    "Terms",
    "kl",
    "kl_terms",
    "likelihoods",
    "warm_up",
]
