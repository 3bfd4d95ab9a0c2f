"""What a learned distribution may be compared with: p(w) of each weight of a Parameter, by itself."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.distributions as td
from torch import Tensor
from torch.distributions import constraints

from ..errors import InvalidArgument

PREFIX = "prior_"  # of everything in a `state_dict` that belongs to a prior


class Prior(ABC):
    """A distribution over single weights, which a posterior is compared with.

    Its numbers are saved beside each Parameter. In a `state_dict`, `weight` gets `weight_prior_<number>`, or
    `weight_prior_log_<number>` if the number is learned.
    """

    how: ClassVar[str]  # how its KL is computed, as `summary` says

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The common shape of its numbers, which broadcasts to the Parameter."""

    @property
    @abstractmethod
    def learned(self) -> tuple[str, ...]:
        """Names of the numbers that are learned, all > 0. Each Parameter learns its own."""

    @abstractmethod
    def numbers(self) -> dict[str, Tensor]:
        """Return the (initial) value of each number, of shape () or one that broadcasts to the weight."""

    def suffix_of(self, number: str) -> str:
        """Return the suffix under which a number is saved beside its Parameter."""
        return f"{PREFIX}log_{number}" if number in self.learned else f"{PREFIX}{number}"

    def number_of(self, suffix: str) -> str:
        """Return the number that is saved under a suffix: the inverse of `suffix_of`."""
        logs = {self.suffix_of(number): number for number in self.learned}
        return logs.get(suffix, suffix.removeprefix(PREFIX))


class ClosedForm(Prior):
    """A prior to which a Gaussian's KL is known."""

    how = "closed form"

    @abstractmethod
    def kl(self, mean: Tensor, std: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        """KL(N(mean, std²) ‖ p) of each weight."""


class Sampled(Prior):
    """A prior whose KL is estimated on a draw."""

    how = "Monte Carlo"

    @abstractmethod
    def log_prob(self, weight: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        """log p of each weight, of its shape, which may have further dimensions in front."""


@dataclass(frozen=True, eq=False, repr=False)
class _Torch(Prior):
    """A `torch.distributions` object. Its arguments are the numbers; it is made anew from them."""

    distribution: td.Distribution

    def __repr__(self) -> str:
        return repr(self.distribution)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.distribution.batch_shape)

    @property
    def learned(self) -> tuple[str, ...]:
        return ()

    def numbers(self) -> dict[str, Tensor]:
        return _arguments(self.distribution)

    def of(self, numbers: dict[str, Tensor]) -> td.Distribution:
        return _made_of(self.distribution, numbers)


@dataclass(frozen=True, eq=False, repr=False)
class _TorchClosedForm(_Torch, ClosedForm):
    def kl(self, mean: Tensor, std: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        return td.kl_divergence(td.Normal(mean, std, validate_args=False), self.of(numbers))


@dataclass(frozen=True, eq=False, repr=False)
class _TorchSampled(_Torch, Sampled):
    def log_prob(self, weight: Tensor, numbers: dict[str, Tensor]) -> Tensor:
        return self.of(numbers).log_prob(weight)


def prior_of(given: Any) -> Prior:
    if isinstance(given, Prior):
        return given
    if not isinstance(given, td.Distribution):
        raise InvalidArgument(
            f"prior={given!r}: expected a prior such as flipout.bayes.Normal(0.0, 1.0), a torch.distributions object, "
            "or {glob: prior}."
        )
    if given.event_shape:
        raise InvalidArgument(
            f"prior={given!r}: it is over vectors of shape {tuple(given.event_shape)}; a prior is over single weights. "
            "Leave Independent(…) away, or take the marginals."
        )
    support = given.support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    if support is not constraints.real:
        raise InvalidArgument(
            f"prior={given!r}: it lives on {support}, a Gaussian on all real numbers, so the KL would be infinite. Use "
            "a prior over the real line."
        )
    standard = td.Normal(torch.zeros(()), torch.ones(()))
    try:
        again = _made_of(given, _arguments(given))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f"prior={given!r}: it cannot be made again from its arguments {list(given.arg_constraints)}, as a saved "
            "model has to. Subclass flipout.bayes.Sampled and give its log_prob."
        ) from error
    try:
        td.kl_divergence(standard, again)
    except NotImplementedError:
        return _TorchSampled(given)
    return _TorchClosedForm(given)


def _arguments(distribution: td.Distribution) -> dict[str, Tensor]:
    if isinstance(distribution, td.MixtureSameFamily):
        parts = {"mixture": distribution.mixture_distribution, "component": distribution.component_distribution}
        return {f"{part}_{name}": value for part, own in parts.items() for name, value in _arguments(own).items()}
    names = list(distribution.arg_constraints)
    if not names:
        raise TypeError(f"{type(distribution).__name__} names no arguments")
    return {name: getattr(distribution, name) for name in names if name != "probs" or "logits" not in names}


def _made_of(like: td.Distribution, numbers: dict[str, Tensor]) -> td.Distribution:
    """One of the same family with these arguments."""
    family: Any = type(like)
    if isinstance(like, td.MixtureSameFamily):
        parts = (("mixture", like.mixture_distribution), ("component", like.component_distribution))
        made = [
            _made_of(own, {n.removeprefix(f"{part}_"): v for n, v in numbers.items() if n.startswith(f"{part}_")})
            for part, own in parts
        ]
        return family(*made, validate_args=False)
    return family(**numbers, validate_args=False)
