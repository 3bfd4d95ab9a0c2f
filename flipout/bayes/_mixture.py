"""The distribution of a target: the equal mixture of what the likelihood says under each sample of the weights."""

import math

import torch
from torch import Tensor

from ..errors import Unsupported
from ._moments import quantiles_of
from .likelihoods import Gaussian, Likelihood

_HALVINGS = 52  # of a bracket in float64, which leaves only rounding
_EPSILON = torch.finfo(torch.float64).eps
_DRAWS = 4096  # targets for each input, where quantiles come from samples
_AT_ONCE = 2**22  # numbers of targets that are drawn at once


class Mixture:
    """Targets under outputs (samples, N, …), each as likely as the others. Numbers are computed in float64."""

    def __init__(self, likelihood: Likelihood, outputs: Tensor) -> None:
        self.likelihood, self.outputs = likelihood, outputs
        self.count = len(outputs)

    def log_prob(self, target: Tensor) -> Tensor:
        """Return the log-probability or log-density (N, …) of the targets."""
        every = self._of_rows(self.count).log_prob(self._rows(), self._repeated(target)).double()
        return every.unflatten(0, (self.count, -1)).logsumexp(0) - math.log(self.count)

    def cdf(self, target: Tensor) -> Tensor:
        """Return the probability (N, …) of a target that is at most this large."""
        every = self._of_rows(self.count).cdf(self._rows(), self._repeated(target.double()))
        return every.unflatten(0, (self.count, -1)).mean(0)

    def quantile(self, probability: float) -> Tensor:
        """Return the smallest y (N, …) with cdf(y) ≥ probability: exact if the likelihood has a cdf."""
        if not self.likelihood.defines("cdf"):
            return self._sampled_quantile(probability)
        mean, std = self._pooled_moments()
        # By Cantelli's inequality this bracket holds the quantile, but for rounding of a mean that is far larger.
        reach = std * math.sqrt(1 / min(probability, 1 - probability)) + 4 * _EPSILON * mean.abs()
        low, high = mean - reach, mean + reach
        if self.likelihood.counts:
            low, high = torch.full_like(low, -1.0), high.ceil()
        if bool(((self.cdf(low) > probability) | (self.cdf(high) < probability)).any()):
            raise Unsupported(
                f"The cdf of {type(self.likelihood).__name__} does not agree with its mean and its noise, which has to "
                "be the variance of a target. Compare them with many samples of one output."
            )
        if self.likelihood.counts:
            return self._whole_quantile(probability, low, high)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            is_below = self.cdf(middle) < probability
            low, high = torch.where(is_below, middle, low), torch.where(is_below, high, middle)
        return high

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance of the target under each sample, (samples, N, …)."""
        rows, shape, likelihood = self._rows(), (self.count, -1), self._of_rows(self.count)
        return likelihood.mean(rows).unflatten(0, shape), likelihood.output_noise(rows).unflatten(0, shape)

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw targets (count, N, …). Each draw has one sample of the weights for all inputs."""
        device = self.outputs.device if generator is None else generator.device
        chosen = torch.randint(self.count, (count,), device=device, generator=generator)
        outputs = self.outputs[chosen.to(self.outputs.device)].to(device)
        return self._of_rows(count).sample(outputs.flatten(0, 1), generator).unflatten(0, (count, -1))

    def _of_rows(self, count: int) -> Likelihood:
        """Return the likelihood of rows (count · N, …). A noise for each input is repeated with the inputs."""
        std = std_of_inputs(self.likelihood, self.outputs.dim() - 1)
        return self.likelihood if std is None else Gaussian(std.repeat(count, *[1] * (std.dim() - 1)), learn=False)

    def _rows(self) -> Tensor:
        return self.outputs.double().flatten(0, 1)

    def _repeated(self, target: Tensor) -> Tensor:
        return target.expand(self.count, *target.shape).flatten(0, 1)

    def _pooled_moments(self) -> tuple[Tensor, Tensor]:
        """Return the mean and the standard deviation (N, …) of a target."""
        means, noise = self.moments()
        return means.mean(0), (noise.mean(0) + means.var(0, correction=0)).sqrt()

    def _whole_quantile(self, probability: float, low: Tensor, high: Tensor) -> Tensor:
        while bool((high - low > 1).any()):
            middle = ((low + high) / 2).floor()
            is_below = self.cdf(middle) < probability
            low, high = torch.where(is_below, middle, low), torch.where(is_below, high, middle)
        return high

    def _sampled_quantile(self, probability: float) -> Tensor:
        """Return a quantile of many targets, drawn from a fixed seed, so that the answer can be repeated."""
        generator = torch.Generator(self.outputs.device).manual_seed(0)
        inputs = max(_AT_ONCE // (_DRAWS * max(self.outputs[0, 0].numel(), 1)), 1)
        parts = [Mixture(self.likelihood, part) for part in self.outputs.split(inputs, 1)]
        drawn = (part.sample(_DRAWS, generator).double() for part in parts)
        return torch.cat([quantiles_of(targets, [probability])[0] for targets in drawn])


def std_of_inputs(likelihood: Likelihood | None, dims: int) -> Tensor | None:
    """Return the standard deviations (N, …) of a noise that differs between inputs, else None.

    Args:
        likelihood: The likelihood of a prediction.
        dims: The number of dimensions of its outputs (N, …).
    """
    if not isinstance(likelihood, Gaussian) or likelihood.log_std.dim() < dims or likelihood.log_std.shape[0] < 2:
        return None
    return likelihood.log_std.detach().double().exp()


def likeliest_classes(probabilities: Tensor, level: float) -> Tensor:
    """Return the smallest sets of classes with at least this probability, as a mask (N, …, classes)."""
    ordered, classes = probabilities.double().sort(-1, descending=True)
    is_needed = ordered.cumsum(-1) - ordered < level
    return torch.zeros_like(is_needed).scatter(-1, classes, is_needed)
