"""Priors: the density p(w) of single weights that a learned distribution is compared with."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.distributions as td
from torch import Tensor
from torch.distributions import constraints

from .._reprs import call_repr
from ..errors import InvalidArgument

PREFIX = "prior_"  # of everything in a `state_dict` that belongs to a prior


def as_number(value: Any) -> Tensor:
    """Return a number as a tensor. It is real inside of `torch.device("meta")` too, where models are converted."""
    return torch.as_tensor(value, dtype=torch.float64, device=None if isinstance(value, Tensor) else "cpu")


class Prior(ABC):
    """Base class of priors. Subclass `ClosedForm` or `Sampled` instead.

    The numbers of a prior are stored beside each Parameter and are part of the `state_dict`: a Parameter `weight` gets
    `weight_prior_<name>`.

    Attributes:
        how: How the KL divergence is computed, as `summary` shows it.
    """

    how: ClassVar[str]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """A shape that broadcasts to the Parameter's."""

    @property
    @abstractmethod
    def learned(self) -> tuple[str, ...]:
        """Names of the numbers that are learned, all above 0. Each Parameter has its own `weight_prior_log_<name>`."""

    @abstractmethod
    def numbers(self) -> dict[str, Tensor]:
        """Return the initial numbers by name, of shape () or a shape that broadcasts to the weight's."""

    def suffix_of(self, number: str) -> str:
        """Return the suffix under which a number is saved beside its Parameter.

        Args:
            number: The name of the number, such as "std".
        """
        return f"{PREFIX}log_{number}" if number in self.learned else f"{PREFIX}{number}"

    def number_of(self, suffix: str) -> str:
        """Return the number that is saved under a suffix: the inverse of `suffix_of`.

        Args:
            suffix: The suffix, such as "prior_std".
        """
        logs = {self.suffix_of(number): number for number in self.learned}
        return logs.get(suffix, suffix.removeprefix(PREFIX))


class ClosedForm(Prior):
    """Base class of priors with a closed-form KL divergence from a Gaussian."""

    how = "closed form"

    @abstractmethod
    def kl(self, mean: Tensor, std: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        """Return KL(N(mean, std²) ‖ p) for each weight.

        Args:
            mean: The means of the weights.
            std: Their standard deviations, of the same shape.
            numbers: The numbers of the prior, each of a shape that broadcasts to the mean's.
        """


class Sampled(Prior):
    """Base class of priors whose KL divergence is estimated by Monte Carlo, on the weights of a draw."""

    how = "Monte Carlo"

    @abstractmethod
    def log_prob(self, weight: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        """Return log p(w) for each weight, of the weight's shape.

        Args:
            weight: The weights, possibly with further dimensions in front: (…, *shape).
            numbers: The numbers of the prior, each of a shape that broadcasts to the weight's.
        """


@dataclass(frozen=True, eq=False, repr=False)
class _Torch(Prior):
    """A `torch.distributions` object as a prior. Its arguments are the numbers, and it is rebuilt from them."""

    distribution: td.Distribution

    def __repr__(self) -> str:
        return call_repr(self.distribution, _arguments(self.distribution))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.distribution.batch_shape)

    @property
    def learned(self) -> tuple[str, ...]:
        return ()

    def numbers(self) -> dict[str, Tensor]:
        return _arguments(self.distribution)

    def with_numbers(self, numbers: dict[str, Tensor]) -> td.Distribution:
        return _rebuilt(self.distribution, numbers)


@dataclass(frozen=True, eq=False, repr=False)
class _TorchClosedForm(_Torch, ClosedForm):
    def kl(self, mean: Tensor, std: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        return td.kl_divergence(td.Normal(mean, std, validate_args=False), self.with_numbers(numbers))


@dataclass(frozen=True, eq=False, repr=False)
class _TorchSampled(_Torch, Sampled):
    def log_prob(self, weight: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        return self.with_numbers(numbers).log_prob(weight)


def prior_of(prior: Any) -> Prior:
    """Return the prior, wrapping a `torch.distributions` object.

    Raises:
        InvalidArgument: It is no prior over single real weights, or cannot be rebuilt from its arguments.
    """
    if isinstance(prior, Prior):
        return prior
    if not isinstance(prior, td.Distribution):
        raise InvalidArgument(
            f"prior={prior!r}: expected a prior such as flipout.bayes.Normal(0.0, 1.0), a torch.distributions object, "
            "or {glob: prior}."
        )
    if prior.event_shape:
        raise InvalidArgument(
            f"prior={prior!r}: it is over vectors of shape {tuple(prior.event_shape)}; expected a prior over single "
            "weights. Remove Independent(…), or use the marginals."
        )
    support = prior.support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    if support is not constraints.real:
        raise InvalidArgument(
            f"prior={prior!r}: its support is {support}. A Gaussian covers the real line, so the KL would be infinite. "
            "Use a prior over the real line."
        )
    standard = td.Normal(torch.zeros((), device="cpu"), torch.ones((), device="cpu"))
    try:
        rebuilt = _rebuilt(prior, _arguments(prior))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"prior={prior!r}: it cannot be rebuilt from its arguments {list(prior.arg_constraints)}, which loading a "
            "saved model requires. Subclass flipout.bayes.Sampled and define log_prob."
        ) from error
    try:
        td.kl_divergence(standard, rebuilt)
    except NotImplementedError:
        return _TorchSampled(prior)
    return _TorchClosedForm(prior)


def _arguments(distribution: td.Distribution) -> dict[str, Tensor]:
    """Return the arguments that a torch distribution can be rebuilt from, by name."""
    if isinstance(distribution, td.MixtureSameFamily):
        parts = {"mixture": distribution.mixture_distribution, "component": distribution.component_distribution}
        return {f"{part}_{name}": value for part, inner in parts.items() for name, value in _arguments(inner).items()}
    names = list(distribution.arg_constraints)
    if not names:
        raise TypeError(f"{type(distribution).__name__} names no arguments")
    return {name: getattr(distribution, name) for name in names if name != "probs" or "logits" not in names}


def _rebuilt(like: td.Distribution, numbers: dict[str, Tensor]) -> td.Distribution:
    """Return a distribution of the same family with these arguments."""
    family: Any = type(like)
    if isinstance(like, td.MixtureSameFamily):
        parts = (("mixture", like.mixture_distribution), ("component", like.component_distribution))
        rebuilt_parts = [
            _rebuilt(inner, {n.removeprefix(f"{part}_"): v for n, v in numbers.items() if n.startswith(f"{part}_")})
            for part, inner in parts
        ]
        return family(*rebuilt_parts, validate_args=False)
    return family(**numbers, validate_args=False)
