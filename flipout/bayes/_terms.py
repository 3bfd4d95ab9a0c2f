"""The terms of the evidence lower bound, and the weight of the KL."""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple

from torch import Tensor

from .._arguments import whole_number
from ..errors import InvalidArgument
from ._shown import shown


class Terms(NamedTuple):
    """The loss of one batch, and what it consists of.

    loss = (kl_weight · kl · examples / num_data − log_likelihood) / batch
    """

    loss: Tensor  # the loss to minimise, in nats per example, of shape ()
    log_likelihood: Tensor  # summed over these examples, of shape ()
    kl: Tensor  # the KL of the whole model, not weighted, of shape ()
    kl_weight: float  # the weight of the KL in this call
    examples: int  # the number of examples in this call
    num_data: int  # the number of examples in the training set

    @property
    def elbo(self) -> Tensor:
        """The bound for the whole training set, in nats, of shape (). The KL has weight 1."""
        return self.log_likelihood * (self.num_data / self.examples) - self.kl

    def __getattr__(self, name: str) -> Any:
        hint = " These are the terms of the loss: write elbo(x, y).loss.backward()." if hasattr(Tensor, name) else ""
        raise AttributeError(f"Terms has no {name!r}; it has {', '.join(self._fields)} and elbo.{hint}")

    def __repr__(self) -> str:
        return shown(self, **self._asdict())


def warm_up(steps: int, weight: float = 1.0) -> Callable[[int], float]:
    """Return a `kl_weight` that rises linearly from 0.

    Args:
        steps: The step at which `weight` is reached.
        weight: The final weight.

    Returns:
        A function from the step, counted from 0, to the weight of the KL.

    Raises:
        InvalidArgument: `steps` is not ≥ 1, or `weight` is not a finite number ≥ 0.

    Example:
        >>> elbo = bayes.ELBO(model, "categorical", num_data=1000, kl_weight=bayes.warm_up(500))
        >>> loss = elbo(x, y, step=step).loss
    """
    steps = whole_number("steps", steps, 1, of="warm_up")
    check_weight("warm_up(weight=…)", weight)
    return lambda step: weight * min(step / steps, 1.0)


def check_weight(what: str, weight: Any) -> None:
    """Refuse a weight that is not a finite number ≥ 0."""
    if not (isinstance(weight, Real) and not isinstance(weight, bool) and 0 <= float(weight) < math.inf):
        raise InvalidArgument(f"{what} is {weight!r}; expected a finite number ≥ 0.")
