"""Likelihoods of numbers: Gaussian noise, and counts."""

import math
from numbers import Real

import torch
from torch import Tensor, nn

from ..errors import InvalidArgument, InvalidInput, Unsupported
from ._likelihood import Likelihood, wide
from ._targets import check_range, check_target_shape, check_whole

_LOG_2PI = math.log(2 * math.pi)
_FAR = 10.0  # standard deviations of the noise; networks and learning rates are made for numbers near 1


class Gaussian(Likelihood):
    """Real targets with Gaussian noise around the output.

    Args:
        std: The standard deviation of the noise: a number, or a tensor that broadcasts to the output, such as one
            number for each feature.
        learn: Learn the standard deviation, as the Parameter `log_std`.

    Raises:
        InvalidArgument: `std` is not a finite number > 0.

    Example:
        >>> elbo = bayes.ELBO(model, Gaussian(0.1, learn=False), num_data=len(data))
    """

    entropic = False
    undecayed = ("log_std",)

    def __init__(self, std: float | Tensor = 1.0, learn: bool = True) -> None:
        super().__init__()
        number = torch.as_tensor(std if isinstance(std, (Real, Tensor)) and not isinstance(std, bool) else torch.nan)
        if not bool((number.isfinite() & (number > 0)).all()):
            raise InvalidArgument(f"Gaussian(std={std!r}): expected the noise's standard deviation, finite and > 0.")
        log = number.detach().to(torch.promote_types(number.dtype, torch.float32)).log()
        self.log_std: Tensor
        if learn:
            self.log_std = nn.Parameter(log)
        else:
            self.register_buffer("log_std", log)

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        check_target_shape("Gaussian", output, target, output.shape, "one mean for each target")
        mean = wide(output)
        log_std = self._log_std(mean)
        scaled = (target.to(mean) - mean) * (-log_std).exp()
        return -(scaled.square() + _LOG_2PI) / 2 - log_std

    def mean(self, output: Tensor) -> Tensor:
        return wide(output)

    def noise(self, mean: Tensor) -> Tensor:
        return (2 * self._log_std(mean)).exp().expand_as(mean)

    def cdf(self, output: Tensor, target: Tensor) -> Tensor:
        mean = wide(output)
        return torch.special.ndtr((target.to(mean) - mean) * (-self._log_std(mean)).exp())

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        mean = wide(output)
        return mean + self._log_std(mean).exp() * _standard_normal(mean, generator)

    def rescaled(self, outputs: Tensor | None, scale: Tensor, shift: Tensor) -> tuple[Likelihood, Tensor | None]:
        std = wide(self.log_std.detach()).exp() * scale
        return Gaussian(std, learn=False), None if outputs is None else wide(outputs) * scale + shift

    def doubt(self, output: Tensor, target: Tensor | None) -> str | None:
        return _doubt_of_scale(wide(output), self.noise(wide(output)).sqrt(), target)

    def _log_std(self, mean: Tensor) -> Tensor:
        sizes = zip(self.log_std.shape[::-1], mean.shape[::-1], strict=False)
        if self.log_std.dim() > mean.dim() or any(size not in (1, full) for size, full in sizes):
            raise InvalidInput(
                f"Gaussian: std of shape {tuple(self.log_std.shape)} and output of shape {tuple(mean.shape)}; expected "
                "a std that broadcasts to the output, such as one for each of its features."
            )
        return self.log_std.to(mean)


class HeteroscedasticGaussian(Likelihood):
    """Real targets with Gaussian noise whose size the network predicts for each input.

    The last dimension of the output holds the means, then the logarithms of as many standard deviations. For targets
    (N, 1) the network ends in two features.

    Example:
        >>> model = nn.Sequential(nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 2))
        >>> elbo = bayes.ELBO(flipout.perturb(model, noise), HeteroscedasticGaussian(), num_data=len(data))
    """

    entropic = False

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        mean, log_std = self._parts(output)
        check_target_shape(
            "HeteroscedasticGaussian", output, target, mean.shape, "a mean and a log std for each target"
        )
        scaled = (target.to(mean) - mean) * (-log_std).exp()
        return -(scaled.square() + _LOG_2PI) / 2 - log_std

    def mean(self, output: Tensor) -> Tensor:
        return self._parts(output)[0]

    def noise(self, mean: Tensor) -> Tensor:
        raise Unsupported("HeteroscedasticGaussian: the mean does not determine the noise. Use output_noise(output).")

    def output_noise(self, output: Tensor) -> Tensor:
        return (2 * self._parts(output.double())[1]).exp()

    def cdf(self, output: Tensor, target: Tensor) -> Tensor:
        mean, log_std = self._parts(output)
        return torch.special.ndtr((target.to(mean) - mean) * (-log_std).exp())

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        mean, log_std = self._parts(output)
        return mean + log_std.exp() * _standard_normal(mean, generator)

    def rescaled(self, outputs: Tensor | None, scale: Tensor, shift: Tensor) -> tuple[Likelihood, Tensor | None]:
        if outputs is None:
            return self, None
        mean, log_std = self._parts(outputs)
        return self, torch.cat((mean * scale + shift, log_std + scale.log()), -1)

    def doubt(self, output: Tensor, target: Tensor | None) -> str | None:
        mean, log_std = self._parts(output)
        return _doubt_of_scale(mean, log_std.exp(), target)

    def _parts(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means and the logarithms of the standard deviations."""
        if not output.dim() or output.shape[-1] % 2:
            raise InvalidInput(
                f"HeteroscedasticGaussian: output of shape {tuple(output.shape)}; expected means and as many log "
                "standard deviations in the last dimension: an even number, such as nn.Linear(…, 2) for targets (N, 1)."
            )
        mean, log_std = wide(output).chunk(2, -1)
        return mean, log_std


class Poisson(Likelihood):
    """Counts, with the logarithm of the rate in the output.

    Example:
        >>> prediction = bayes.predict(model, x, likelihood=Poisson())
    """

    entropic = False
    counts = True

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        check_target_shape("Poisson", output, target, output.shape, "one log rate for each target")
        check_range("Poisson", target, 0, torch.inf)
        check_whole("Poisson", target)
        log_rate = wide(output)
        count = target.to(log_rate)
        return count * log_rate - log_rate.exp() - torch.lgamma(count + 1)

    def mean(self, output: Tensor) -> Tensor:
        return wide(output).exp()

    def noise(self, mean: Tensor) -> Tensor:
        return mean

    def cdf(self, output: Tensor, target: Tensor) -> Tensor:
        rate = wide(output).exp()
        count = target.to(rate).floor()
        return torch.special.gammaincc(count.clamp_min(0) + 1, rate) * (count >= 0)

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.poisson(wide(output).exp(), generator=generator)


def _doubt_of_scale(mean: Tensor, std: Tensor, target: Tensor | None) -> str | None:
    """Return a warning if the targets lie so far from the means that training would take thousands of steps."""
    if target is None:
        return None
    distance, noise = (target.to(mean) - mean).square().mean().sqrt().item(), std.mean().item()
    if not _FAR * max(noise, 1.0) <= distance < math.inf:
        return None
    return (
        f"The targets are {distance:.3g} away from the outputs (root mean square), and the noise starts at a standard "
        f"deviation of {noise:.3g}. An optimiser needs thousands of steps for that, and until then intervals are much "
        "too narrow. Train on (y - y.mean()) / y.std(), and return to the unit of y with "
        "prediction.rescale(y.std(), y.mean())."
    )


def _standard_normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)
