"""Variational Bayes: priors, the KL, the evidence lower bound, and predictions that say how sure they are."""

from ..distributions.prior import ClosedForm, Prior, Sampled
from . import likelihoods
from .elbo import ELBO, Terms, warm_up
from .evaluation import Reliability, Scores, Selective, evaluate, ood_auroc, reliability, selective
from .guard import Guard, Skipped
from .kl import kl, kl_terms
from .predictive import Prediction, predict
from .priors import Laplace, LogUniform, Normal, ScaleMixture
from .pruning import Pruned, PruningCurve, prune, pruning_curve, signal_to_noise

__all__ = [
    "ELBO",
    "ClosedForm",
    "Guard",
    "Laplace",
    "LogUniform",
    "Normal",
    "Prediction",
    "Prior",
    "Pruned",
    "PruningCurve",
    "Reliability",
    "Sampled",
    "ScaleMixture",
    "Scores",
    "Selective",
    "Skipped",
    "Terms",
    "evaluate",
    "kl",
    "kl_terms",
    "likelihoods",
    "ood_auroc",
    "predict",
    "prune",
    "pruning_curve",
    "reliability",
    "selective",
    "signal_to_noise",
    "warm_up",
]
