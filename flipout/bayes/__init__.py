"""Variational Bayes: priors, the KL, the evidence lower bound, and predictions that say how sure they are."""

from ..distributions.prior import ClosedForm, Prior, Sampled
from . import likelihoods
from .elbo import ELBO, Terms, warm_up
from .guard import Guard, Skipped
from .kl import kl, kl_terms
from .predictive import Prediction, predict
from .priors import Laplace, LogUniform, Normal, ScaleMixture

__all__ = [
    "ELBO",
    "ClosedForm",
    "Guard",
    "Laplace",
    "LogUniform",
    "Normal",
    "Prediction",
    "Prior",
    "Sampled",
    "ScaleMixture",
    "Skipped",
    "Terms",
    "kl",
    "kl_terms",
    "likelihoods",
    "predict",
    "warm_up",
]
