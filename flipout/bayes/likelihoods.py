"""log p(target | output of the network), and what that says of the target under one draw of the weights."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..draws.bits import is_transformed
from ..errors import InvalidArgument, InvalidInput

__all__ = ["Bernoulli", "Categorical", "Gaussian", "Likelihood", "Poisson"]


class Likelihood(nn.Module, ABC):
    """Computes in float32 at least. Called, it gives `log_prob`."""

    entropic: ClassVar[bool]  # `noise` is the entropy of the target, in nats; else its variance

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        for name, given in (("output", output), ("target", target)):
            if not isinstance(given, Tensor):
                raise InvalidInput(
                    f"{type(self).__name__}: {name} of {type(given)}; expected a tensor. A model with several outputs "
                    "needs a module around it that returns one, or a likelihood of its own: a function (output, "
                    "target) → log-likelihoods (N, …)."
                )
        return self.log_prob(output, target)

    @abstractmethod
    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        """(N, …): of each number that is observed."""

    @abstractmethod
    def mean(self, output: Tensor) -> Tensor:
        """The expected target: probabilities, where it is a class. Of the shape (N, …) of the output."""

    @abstractmethod
    def noise(self, mean: Tensor) -> Tensor:
        """How uncertain a target of this mean (N, …) is; without the dimension of the classes."""


class Categorical(Likelihood):
    """Logits of classes in dimension `dim` of the output. Targets `ignore` count nothing, as padded tokens."""

    entropic = True

    def __init__(self, dim: int = -1, ignore: int = -100) -> None:
        super().__init__()
        self.dim, self.ignore = dim, ignore

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        given = tuple(output.shape)
        if not -output.dim() <= self.dim < output.dim():
            raise InvalidInput(f"Categorical(dim={self.dim}): output of shape {given} has no such dimension.")
        if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
            raise InvalidInput(
                f"Categorical: targets of dtype {target.dtype}; expected classes: target.long(), or "
                "target.argmax(-1) of one-hot targets."
            )
        if output.dim() < 2:
            raise InvalidInput(f"Categorical: output of shape {given}; expected (N, classes), or more dimensions.")
        logits = _wide(output).movedim(self.dim, -1)
        other = " (elsewhere: Categorical(dim=1))" if output.dim() > 2 else ""
        what = f"classes in dimension {self.dim}{other}"
        one_hot = (
            f"Take the classes of one-hot targets: target.argmax({self.dim})" if target.shape == output.shape else ""
        )
        _check_shapes("Categorical", output, target, logits.shape[:-1], what, one_hot)
        flat = logits.flatten(0, -2), target.long().flatten()
        _check_range("Categorical", flat[1], 0, logits.shape[-1] - 1, self.ignore)
        return -F.cross_entropy(*flat, reduction="none", ignore_index=self.ignore).view(target.shape)

    def mean(self, output: Tensor) -> Tensor:
        return _wide(output).softmax(self.dim)

    def noise(self, mean: Tensor) -> Tensor:
        return torch.special.entr(mean).sum(self.dim)


class Bernoulli(Likelihood):
    """The logit of each target, which is 0 or 1."""

    entropic = True

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        _check_shapes("Bernoulli", output, target, output.shape, "one logit for each target")
        _check_range("Bernoulli", target, 0, 1)
        logits = _wide(output)
        return -F.binary_cross_entropy_with_logits(logits, target.to(logits), reduction="none")

    def mean(self, output: Tensor) -> Tensor:
        return _wide(output).sigmoid()

    def noise(self, mean: Tensor) -> Tensor:
        return torch.special.entr(mean) + torch.special.entr(1 - mean)


class Gaussian(Likelihood):
    """The mean of each target; its standard deviation `std` is a Parameter (`log_std`) where `learn`, the default.

    `std` is a number, or a tensor that broadcasts to the output: one for each of its features.
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
        _check_shapes("Gaussian", output, target, output.shape, "one mean for each target")
        mean = _wide(output)
        log_std = self._log_std(mean)
        scaled = (target.to(mean) - mean) * (-log_std).exp()
        return -(scaled.square() + _LOG_2PI) / 2 - log_std

    def mean(self, output: Tensor) -> Tensor:
        return _wide(output)

    def noise(self, mean: Tensor) -> Tensor:
        return (2 * self._log_std(mean)).exp().expand_as(mean)

    def _log_std(self, mean: Tensor) -> Tensor:
        own = zip(self.log_std.shape[::-1], mean.shape[::-1], strict=False)
        if self.log_std.dim() > mean.dim() or any(size not in (1, full) for size, full in own):
            raise InvalidInput(
                f"Gaussian: std of shape {tuple(self.log_std.shape)} and output of shape {tuple(mean.shape)}; expected "
                "a std that broadcasts to the output, such as one for each of its features."
            )
        return self.log_std.to(mean)


class Poisson(Likelihood):
    """The log of each target's rate."""

    entropic = False

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        _check_shapes("Poisson", output, target, output.shape, "one log rate for each target")
        _check_range("Poisson", target, 0, torch.inf)
        log_rate = _wide(output)
        count = target.to(log_rate)
        return count * log_rate - log_rate.exp() - torch.lgamma(count + 1)

    def mean(self, output: Tensor) -> Tensor:
        return _wide(output).exp()

    def noise(self, mean: Tensor) -> Tensor:
        return mean


_BY_NAME: dict[str, Callable[[], Likelihood]] = {
    "categorical": Categorical,
    "gaussian": Gaussian,
    "bernoulli": Bernoulli,
    "poisson": Poisson,
}
_LOG_2PI = 1.8378770664093453


def likelihood_of(given: Any) -> Any:
    """A Likelihood, or the callable that was given instead of one."""
    if isinstance(given, str) and given in _BY_NAME:
        return _BY_NAME[given]()
    if isinstance(given, str) or not callable(given):
        raise InvalidArgument(
            f"likelihood={given!r}: expected one of {sorted(_BY_NAME)}, one of flipout.bayes.likelihoods, or a "
            "function (output, target) → log-likelihoods of shape (N, …)."
        )
    if _is_loss(given):
        raise InvalidArgument(
            f"likelihood={given!r}: that is a loss, and would be maximised. Use a name such as 'categorical', or a "
            "function (output, target) → minus that loss, with reduction='none'."
        )
    return given


def _is_loss(given: Any) -> bool:
    """One of torch's, also with arguments bound. (A bare function gives a mean, which is refused by its shape.)"""
    inner = given
    while isinstance(inner, partial):
        inner = inner.func
    if isinstance(inner, nn.modules.loss._Loss):
        return True
    name = getattr(inner, "__name__", "")
    functional = inner is not given and getattr(inner, "__module__", None) == F.__name__
    return functional and ("loss" in name or "cross_entropy" in name or name == "kl_div")


def _wide(output: Tensor) -> Tensor:
    return output.to(torch.promote_types(output.dtype, torch.float32))


def _check_shapes(kind: str, output: Tensor, target: Tensor, expected: torch.Size, what: str, fix: str = "") -> None:
    if target.shape != expected:
        raise InvalidInput(
            f"{kind}: output of shape {tuple(output.shape)} and target of shape {tuple(target.shape)}; this output, "
            f"with {what}, needs targets of shape {tuple(expected)}. "
            f"{fix or 'Reshape one of them'}: nothing is broadcast."
        )


def _check_range(kind: str, target: Tensor, low: float, high: float, ignored: int | None = None) -> None:
    """Only where reading them costs nothing."""
    if target.device.type != "cpu" or is_transformed():
        return
    counted = target if ignored is None else target[target != ignored]
    if counted.numel():
        found = counted.min().item(), counted.max().item()
        if not (low <= found[0] and found[1] <= high):
            own = f"them from {low} to {high}. Number classes from 0; scale others into that range"
            wanted = "counts ≥ 0" if high == float("inf") else own
            raise InvalidInput(f"{kind}: targets from {found[0]} to {found[1]}; expected {wanted}.")
