"""Likelihoods: the distribution of a target, given the network's output under one draw of the weights."""

import math
from abc import ABC, abstractmethod
from numbers import Real
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InvalidArgument, InvalidInput
from ._targets import check_range, check_shapes

__all__ = ["Bernoulli", "Categorical", "Gaussian", "Likelihood", "Poisson"]

_LOG_2PI = math.log(2 * math.pi)


class Likelihood(nn.Module, ABC):
    """The base class of all likelihoods.

    Subclass it to add one. Calling a likelihood checks its arguments and returns `log_prob`. Numbers are computed in
    float32 or in a wider dtype.
    """

    entropic: ClassVar[bool]  # `noise` is an entropy in nats; otherwise it is a variance

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        for name, tensor in (("output", output), ("target", target)):
            if not isinstance(tensor, Tensor):
                raise InvalidInput(
                    f"{type(self).__name__}: {name} of {type(tensor)}; expected a tensor. If the model has several "
                    "outputs, wrap it in a module that returns one, or pass your own likelihood: a function (output, "
                    "target) → log-likelihoods (N, …)."
                )
        return self.log_prob(output, target)

    @abstractmethod
    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the log-likelihood (N, …) of each observed number."""

    @abstractmethod
    def mean(self, output: Tensor) -> Tensor:
        """Return the expected target, of the output's shape (N, …). For classes these are probabilities."""

    @abstractmethod
    def noise(self, mean: Tensor) -> Tensor:
        """Return the uncertainty of a target with this mean (N, …). The dimension of the classes is summed out."""


class Categorical(Likelihood):
    """Classes, with one logit each in the output.

    Args:
        dim: The dimension of the classes in the output.
        ignore: Targets with this number have log-likelihood 0, for example padded tokens.

    Example:
        >>> elbo = bayes.ELBO(model, Categorical(dim=1), num_data=len(data))
    """

    entropic = True

    def __init__(self, dim: int = -1, ignore: int = -100) -> None:
        super().__init__()
        self.dim, self.ignore = dim, ignore

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        shape = tuple(output.shape)
        if not -output.dim() <= self.dim < output.dim():
            raise InvalidInput(f"Categorical(dim={self.dim}): output of shape {shape} has no such dimension.")
        if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
            raise InvalidInput(
                f"Categorical: targets of dtype {target.dtype}; expected classes: target.long(), or "
                "target.argmax(-1) of one-hot targets."
            )
        if output.dim() < 2:
            raise InvalidInput(f"Categorical: output of shape {shape}; expected (N, classes), or more dimensions.")
        logits = _wide(output).movedim(self.dim, -1)
        elsewhere = " (elsewhere: Categorical(dim=1))" if output.dim() > 2 else ""
        is_one_hot = target.shape == output.shape
        check_shapes(
            "Categorical",
            output,
            target,
            logits.shape[:-1],
            f"classes in dimension {self.dim}{elsewhere}",
            f"Take the classes of one-hot targets: target.argmax({self.dim})" if is_one_hot else "",
        )
        classes = target.long().flatten()
        check_range("Categorical", classes, 0, logits.shape[-1] - 1, self.ignore)
        losses = F.cross_entropy(logits.flatten(0, -2), classes, reduction="none", ignore_index=self.ignore)
        return -losses.view(target.shape)

    def mean(self, output: Tensor) -> Tensor:
        return _wide(output).softmax(self.dim)

    def noise(self, mean: Tensor) -> Tensor:
        return torch.special.entr(mean).sum(self.dim)


class Bernoulli(Likelihood):
    """Targets that are 0 or 1, with one logit each in the output.

    Example:
        >>> prediction = bayes.predict(model, x, likelihood=Bernoulli())
    """

    entropic = True

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        check_shapes("Bernoulli", output, target, output.shape, "one logit for each target")
        check_range("Bernoulli", target, 0, 1)
        logits = _wide(output)
        return -F.binary_cross_entropy_with_logits(logits, target.to(logits), reduction="none")

    def mean(self, output: Tensor) -> Tensor:
        return _wide(output).sigmoid()

    def noise(self, mean: Tensor) -> Tensor:
        return torch.special.entr(mean) + torch.special.entr(1 - mean)


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
        check_shapes("Gaussian", output, target, output.shape, "one mean for each target")
        mean = _wide(output)
        log_std = self._log_std(mean)
        scaled = (target.to(mean) - mean) * (-log_std).exp()
        return -(scaled.square() + _LOG_2PI) / 2 - log_std

    def mean(self, output: Tensor) -> Tensor:
        return _wide(output)

    def noise(self, mean: Tensor) -> Tensor:
        return (2 * self._log_std(mean)).exp().expand_as(mean)

    def _log_std(self, mean: Tensor) -> Tensor:
        sizes = zip(self.log_std.shape[::-1], mean.shape[::-1], strict=False)
        if self.log_std.dim() > mean.dim() or any(size not in (1, full) for size, full in sizes):
            raise InvalidInput(
                f"Gaussian: std of shape {tuple(self.log_std.shape)} and output of shape {tuple(mean.shape)}; expected "
                "a std that broadcasts to the output, such as one for each of its features."
            )
        return self.log_std.to(mean)


class Poisson(Likelihood):
    """Counts, with the logarithm of the rate in the output.

    Example:
        >>> prediction = bayes.predict(model, x, likelihood=Poisson())
    """

    entropic = False

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        check_shapes("Poisson", output, target, output.shape, "one log rate for each target")
        check_range("Poisson", target, 0, torch.inf)
        log_rate = _wide(output)
        count = target.to(log_rate)
        return count * log_rate - log_rate.exp() - torch.lgamma(count + 1)

    def mean(self, output: Tensor) -> Tensor:
        return _wide(output).exp()

    def noise(self, mean: Tensor) -> Tensor:
        return mean


def _wide(output: Tensor) -> Tensor:
    return output.to(torch.promote_types(output.dtype, torch.float32))
