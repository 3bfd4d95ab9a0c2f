"""Bayesian LoRA for models of PEFT: a posterior on an adapter, its training, saving and predictions."""

from ._answers import predict_answers
from ._export import export_samples
from ._generation import Agreement, TextUncertainty, agreement, generate, text_uncertainty
from ._model import bayesian_lora
from ._saving import load
from ._trainer import BayesianTrainerMixin, count_labels
from ._training_free import FittedSpread, fit_spread

__all__ = [
    "Agreement",
    "BayesianTrainerMixin",
    "FittedSpread",
    "TextUncertainty",
    "agreement",
    "bayesian_lora",
    "count_labels",
    "export_samples",
    "fit_spread",
    "generate",
    "load",
    "predict_answers",
    "text_uncertainty",
]
