"""The likelihood that `predict` uses to turn outputs into expected targets."""

import copy
from typing import Any

from torch import nn

from ..errors import InvalidArgument
from ._named import likelihood_of
from .likelihoods import Categorical, Gaussian, Likelihood


def predictive_likelihood(requested: Any, out_dim: int) -> Likelihood | None:
    """Return the likelihood for outputs whose dimension `out_dim` was moved to the front."""
    if requested is None:
        return None
    if requested == "gaussian":
        raise InvalidArgument(
            "likelihood='gaussian': how large is the noise? predict(elbo, x) knows what was learned. Or give "
            "likelihood=elbo.likelihood, flipout.bayes.likelihoods.Gaussian(std), or 'heteroscedastic' if the model "
            "predicts the noise too."
        )
    likelihood = likelihood_of(requested)
    if isinstance(likelihood, Likelihood):
        return _moved(likelihood, out_dim)
    if isinstance(likelihood, nn.Module):
        raise InvalidArgument(
            f"predict(likelihood=…): a {type(likelihood).__name__} given; expected a likelihood, such as "
            "elbo.likelihood."
        )
    raise InvalidArgument(
        f"predict(likelihood={requested!r}): a function does not say what is expected of a target; use one of "
        "flipout.bayes.likelihoods, or None for the output itself."
    )


def frozen(likelihood: Likelihood | None) -> Likelihood | None:
    """Return a copy that further training does not change."""
    return None if likelihood is None else copy.deepcopy(likelihood).requires_grad_(False)


def _moved(likelihood: Likelihood, dim: int) -> Likelihood:
    """Return the likelihood of an output whose dimension `dim` was moved to the front."""
    if isinstance(likelihood, Categorical) and likelihood.dim == dim:
        raise InvalidArgument(
            f"Categorical(dim={dim}): that is the dimension of the examples, not of the classes. Say where the output "
            "has its classes, Categorical(dim=-1), or where it has its examples, predict(…, batch_dim=…)."
        )
    if not dim:
        return likelihood
    if isinstance(likelihood, Categorical) and likelihood.dim != -1:
        if likelihood.dim < 0:
            raise InvalidArgument(
                f"predict(batch_dim={dim}) with Categorical(dim={likelihood.dim}): count the dimension of the classes "
                "from the front, or put them last."
            )
        return Categorical(likelihood.dim + (likelihood.dim < dim), likelihood.ignore)
    if isinstance(likelihood, Gaussian) and likelihood.log_std.dim() > 1:
        raise InvalidArgument(
            f"predict(batch_dim={dim}) with a Gaussian std of shape {tuple(likelihood.log_std.shape)}: expected a "
            "number, or one for each feature of the last dimension."
        )
    return likelihood
