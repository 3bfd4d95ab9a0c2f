"""Variational Bayes: priors, the KL, the evidence lower bound, and predictions with their uncertainty."""

from ..distributions.prior import ClosedForm, Prior, Sampled
from . import likelihoods
from ._calibration import CalibrationCurve
from ._elbo import ELBO
from ._evaluation import NumberScores, Scores, evaluate
from ._guard import Guard, Skipped
from ._kl import kl, kl_terms
from ._predict import predict
from ._prediction import Prediction
from ._pruning import Pruned, PruningCurve, prune, pruning_curve, signal_to_noise
from ._rank_one import absorb_scales, rank_one
from ._recalibration import Recalibration, recalibrate
from ._reliability import Reliability, reliability
from ._selection import Selective, ood_auroc, selective
from ._terms import Terms, warm_up
from .priors import Laplace, LogUniform, Normal, ScaleMixture

__all__ = [
    "ELBO",
    "CalibrationCurve",
    "ClosedForm",
    "Guard",
    "Laplace",
    "LogUniform",
    "Normal",
    "NumberScores",
    "Prediction",
    "Prior",
    "Pruned",
    "PruningCurve",
    "Recalibration",
    "Reliability",
    "Sampled",
    "ScaleMixture",
    "Scores",
    "Selective",
    "Skipped",
    "Terms",
    "absorb_scales",
    "evaluate",
    "kl",
    "kl_terms",
    "likelihoods",
    "ood_auroc",
    "predict",
    "prune",
    "pruning_curve",
    "rank_one",
    "recalibrate",
    "reliability",
    "selective",
    "signal_to_noise",
    "warm_up",
]
