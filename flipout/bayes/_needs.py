"""What a question to a prediction needs: a level, several samples, a likelihood, the samples themselves, targets."""

from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..errors import InvalidArgument, InvalidInput, Unsupported
from ._mixture import Mixture
from .likelihoods import Likelihood

if TYPE_CHECKING:
    from ._prediction import Prediction


def check_level(of: str, level: Any) -> None:
    """Refuse a level that is not a probability strictly between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
        raise InvalidArgument(f"{of}(level={level!r}): expected a probability between 0 and 1, such as 0.9.")


def check_several(of: str, prediction: "Prediction") -> None:
    """Refuse a single sample. Only the interval of a target may come from one network, if that is all there is."""
    if prediction.count < 2 and not (prediction.is_whole and of == "interval"):
        raise Unsupported(
            f"{of}: one sample says nothing about the spread over the weights. Use predict(…, samples=32)."
        )


def needed_likelihood(of: str, prediction: "Prediction") -> Likelihood:
    """Return the likelihood, or refuse a prediction without one."""
    if prediction.likelihood is None:
        raise Unsupported(
            f"{of}: without a likelihood nothing is known about the noise of the target. Use predict(elbo, x), or "
            "predict(model, x, likelihood=…) with elbo.likelihood, Gaussian(std) for likelihood='gaussian', or a name "
            "such as 'categorical'. Without noise there are function_interval, where the function is, and "
            "mean_interval, the Monte Carlo error of mean."
        )
    return prediction.likelihood


def needed_samples(of: str, prediction: "Prediction") -> Tensor:
    """Return the expected target under each sample, or refuse if the samples were not kept."""
    if prediction.samples is None:
        raise _not_kept(of, prediction)
    return prediction.samples


def needed_mixture(of: str, prediction: "Prediction") -> Mixture:
    """Return the distribution of the target, or refuse if the samples that it needs were not kept."""
    likelihood = needed_likelihood(of, prediction)
    if prediction.outputs is not None:
        return Mixture(likelihood, prediction.outputs)
    if likelihood.defines("logits"):  # a mixture over classes is determined by its mean
        return Mixture(likelihood, likelihood.logits(prediction.mean).unsqueeze(0))
    raise _not_kept(of, prediction)


def checked_targets(of: str, prediction: "Prediction", target: Any) -> Tensor:
    """Return the targets on the prediction's device, or refuse another shape and numbers that are not finite."""
    shape, is_tensor = tuple(prediction.total.shape), isinstance(target, Tensor)
    if not is_tensor or tuple(target.shape) != shape:
        found = f"of shape {tuple(target.shape)}" if is_tensor else f"of {type(target)}"
        fix = "" if is_tensor else " Write torch.as_tensor(target)."
        if is_tensor and target.numel() == prediction.total.numel():
            fix = f" Write target.view{shape}."
        raise InvalidInput(
            f"{of}: targets {found}; this prediction, with a mean of shape {tuple(prediction.mean.shape)}, has targets "
            f"of shape {shape}. Nothing is broadcast.{fix}"
        )
    if target.is_complex():
        raise InvalidInput(f"{of}: complex targets, of dtype {target.dtype}; expected real ones: target.real.")
    if target.is_floating_point() and not bool(target.isfinite().all()):
        raise InvalidInput(f"{of}: targets that are infinite or not a number. Leave these examples out.")
    return target.detach().to(prediction.mean.device)


def _not_kept(of: str, prediction: "Prediction") -> Unsupported:
    return Unsupported(
        f"{of} needs the {prediction.count} samples of each input, which were not kept. Use predict(…, keep=True), or "
        "predict fewer inputs at a time: by default up to 2²⁴ numbers are kept."
    )
