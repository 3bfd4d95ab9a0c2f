"""Likelihoods of classes."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InvalidInput
from ._likelihood import Likelihood, wide
from ._targets import check_range, check_target_shape

_ROUNDING = 0.01  # the sum of probabilities may be this far from 1 in low precision


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
        logits = wide(output).movedim(self.dim, -1)
        elsewhere = " (elsewhere: Categorical(dim=1))" if output.dim() > 2 else ""
        is_one_hot = target.shape == output.shape
        check_target_shape(
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

    def doubt(self, output: Tensor, target: Tensor | None) -> str | None:
        sums = wide(output).sum(self.dim)
        if output.shape[self.dim] < 2 or bool((output < 0).any()) or bool(((sums - 1).abs() > _ROUNDING).any()):
            return None
        return (
            "The outputs are ≥ 0 and sum to 1, as probabilities do. A categorical likelihood takes logits, and applies "
            "the softmax itself. Leave the model's softmax out."
        )

    def mean(self, output: Tensor) -> Tensor:
        return wide(output).softmax(self.dim)

    def noise(self, mean: Tensor) -> Tensor:
        return torch.special.entr(mean).sum(self.dim)

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        probabilities = self.probabilities(self.mean(output))
        drawn = torch.multinomial(probabilities.flatten(0, -2), 1, generator=generator)
        return drawn.view(probabilities.shape[:-1])

    def probabilities(self, mean: Tensor) -> Tensor:
        return mean.movedim(self.dim, -1)

    def logits(self, mean: Tensor) -> Tensor:
        return mean.log()


class Bernoulli(Likelihood):
    """Targets that are 0 or 1, with one logit each in the output.

    Example:
        >>> prediction = bayes.predict(model, x, likelihood=Bernoulli())
    """

    entropic = True

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        check_target_shape("Bernoulli", output, target, output.shape, "one logit for each target")
        check_range("Bernoulli", target, 0, 1)
        logits = wide(output)
        classes = target.to(logits)
        found = -F.binary_cross_entropy_with_logits(logits, classes, reduction="none")
        # Of a probability that is 0 or 1, torch's loss is 0 · ∞.
        certain = torch.where(classes == (logits > 0).to(classes), 0.0, -torch.inf)
        return torch.where(logits.isinf(), certain.to(found), found)

    def mean(self, output: Tensor) -> Tensor:
        return wide(output).sigmoid()

    def noise(self, mean: Tensor) -> Tensor:
        return torch.special.entr(mean) + torch.special.entr(1 - mean)

    def sample(self, output: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return torch.bernoulli(self.mean(output), generator=generator)

    def probabilities(self, mean: Tensor) -> Tensor:
        return torch.stack((1 - mean, mean), -1)

    def logits(self, mean: Tensor) -> Tensor:
        return mean.logit()
