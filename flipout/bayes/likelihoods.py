"""Likelihoods: the distribution of a target, given the network's output under one draw of the weights."""

from ._class_likelihoods import Bernoulli, Categorical
from ._likelihood import Likelihood
from ._number_likelihoods import Gaussian, HeteroscedasticGaussian, Poisson

__all__ = ["Bernoulli", "Categorical", "Gaussian", "HeteroscedasticGaussian", "Likelihood", "Poisson"]
