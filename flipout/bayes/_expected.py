"""The likelihood that `predict` uses to turn outputs into expected targets."""

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
            "predict(likelihood='gaussian'): how large is the noise? Give the likelihood that was trained, "
            "elbo.likelihood, or flipout.bayes.likelihoods.Gaussian(std)."
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


def _moved(likelihood: Likelihood, dim: int) -> Likelihood:
    """Return the likelihood of an output whose dimension `dim` was moved to the front."""
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
