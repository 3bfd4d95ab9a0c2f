"""Likelihoods by name."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InvalidArgument
from .likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, Likelihood, Poisson

LikelihoodName = Literal["categorical", "gaussian", "heteroscedastic", "bernoulli", "poisson"]
LogLikelihood = Callable[[Any, Any], Tensor]  # (output, target) → log-likelihoods (N, …)

BY_NAME: dict[str, Callable[[], Likelihood]] = {
    "categorical": Categorical,
    "gaussian": Gaussian,
    "heteroscedastic": HeteroscedasticGaussian,
    "bernoulli": Bernoulli,
    "poisson": Poisson,
}


def likelihood_of(requested: Any) -> Any:
    """Return the Likelihood of that name, or the Likelihood or function that was given."""
    if isinstance(requested, str) and requested in BY_NAME:
        return BY_NAME[requested]()
    if isinstance(requested, str) or not callable(requested):
        raise InvalidArgument(
            f"likelihood={requested!r}: expected one of {sorted(BY_NAME)}, one of flipout.bayes.likelihoods, or a "
            "function (output, target) → log-likelihoods of shape (N, …)."
        )
    if _is_loss(requested):
        raise InvalidArgument(
            f"likelihood={requested!r}: that is a loss, and would be maximised. Use a name such as 'categorical', or a "
            "function (output, target) → minus that loss, with reduction='none'."
        )
    return requested


def _is_loss(function: Any) -> bool:
    """Return True for torch's losses, also with arguments bound.

    A bare function such as F.cross_entropy returns a mean, which ELBO refuses because of its shape.
    """
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    if isinstance(inner, nn.modules.loss._Loss):
        return True
    name = getattr(inner, "__name__", "")
    is_functional = inner is not function and getattr(inner, "__module__", None) == F.__name__
    return is_functional and ("loss" in name or "cross_entropy" in name or name == "kl_div")
