"""What every likelihood says about a target, and what it may leave out."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..errors import InvalidInput, Unsupported


class Likelihood(nn.Module, ABC):
    """The base class of all likelihoods.

    Subclass it to add one. Calling a likelihood checks its arguments and returns `log_prob`. Numbers are computed in
    float32 or in a wider dtype. `log_prob`, `mean` and `noise` are needed. `cdf` and `sample` give a prediction its
    intervals: exact ones from `cdf`, or those of samples.
    """

    entropic: ClassVar[bool]  # the targets are classes: `noise` is an entropy in nats; otherwise it is a variance
    counts: ClassVar[bool] = False  # the targets are the whole numbers ≥ 0
    undecayed: ClassVar[tuple[str, ...]] = ()  # names of its Parameters that weight decay must spare

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
        """Return the log-likelihood (N, …) of each observed number.

        Args:
            output: The model's output, (N, …).
            target: The targets.
        """

    @abstractmethod
    def mean(self, output: Tensor) -> Tensor:
        """Return the expected target (N, …). For classes these are probabilities.

        Args:
            output: The model's output, (N, …).
        """

    @abstractmethod
    def noise(self, mean: Tensor) -> Tensor:
        """Return the uncertainty of a target with this mean (N, …). The dimension of the classes is summed out.

        Args:
            mean: Expected targets, as `mean` returns them.
        """

    def output_noise(self, output: Tensor) -> Tensor:
        """Return the uncertainty (N, …) of a target with this output. Define it if the mean does not determine it.

        Args:
            output: The model's output, (N, …).
        """
        return self.noise(self.mean(output).double())

    def cdf(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the probability (N, …) of a target that is at most this large.

        Args:
            output: The model's output, (N, …).
            target: The targets.
        """
        raise self._lacks("cdf(output, target)")

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw one target (N, …) for each output.

        Args:
            output: The model's output, (N, …).
            generator: The source of randomness, torch's own by default.
        """
        raise self._lacks("sample(output, generator)")

    def probabilities(self, mean: Tensor) -> Tensor:
        """Return the probabilities of the classes (N, …, classes), for this expected target.

        Args:
            mean: Expected targets, as `mean` returns them.
        """
        raise self._lacks("probabilities(mean)")

    def logits(self, mean: Tensor) -> Tensor:
        """Return an output (N, …) whose expected target is `mean`, if that determines the distribution.

        Args:
            mean: Expected targets, as `mean` returns them.
        """
        raise self._lacks("logits(mean)")

    def rescaled(self, outputs: Tensor | None, scale: Tensor, shift: Tensor) -> "tuple[Likelihood, Tensor | None]":
        """Return the likelihood and the outputs (samples, N, …) of scale · target + shift.

        Args:
            outputs: The outputs for the target itself, or None if they were not kept.
            scale: The factor, > 0.
            shift: The summand.
        """
        raise self._lacks("rescaled(outputs, scale, shift)")

    def doubt(self, output: Tensor, target: Tensor | None) -> str | None:
        """Return what looks like a mistake in a first batch, or None. `ELBO` and `predict` warn of it.

        Args:
            output: The model's output, (N, …).
            target: The targets; None in a prediction.
        """
        return None

    def defines(self, method: str) -> bool:
        """Return True if this likelihood has a method that the base class leaves out.

        Args:
            method: The name of the method, such as "cdf".
        """
        return getattr(type(self), method) is not getattr(Likelihood, method)

    def _lacks(self, method: str) -> Unsupported:
        return Unsupported(
            f"The likelihood {type(self).__name__} has no {method}. Define it in your subclass of Likelihood, or use "
            "one of flipout.bayes.likelihoods that has it."
        )


def wide(output: Tensor) -> Tensor:
    """Return the tensor in float32, or in its own dtype if that is wider."""
    return output.to(torch.promote_types(output.dtype, torch.float32))
