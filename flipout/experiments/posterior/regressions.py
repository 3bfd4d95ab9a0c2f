"""Linear regressions with Gaussian noise and a Gaussian prior: the exact posterior and its best factorised Gaussian."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from flipout.errors import InvalidArgument

from ..evidence.statistics import t_quantile
from ..running.experiment import check_least


@dataclass(frozen=True)
class RegressionConfig:
    """y = x·w + noise: `tasks` regressions over the same inputs, each with its own w from the prior N(0, prior²)."""

    tasks: int = 64
    inputs: int = 6
    correlation: float = 0.5  # of every two inputs
    examples: int = 20
    held_out: int = 200
    noise: float = 1.0  # standard deviation of the targets
    prior: float = 0.5  # standard deviation of the weights

    def __post_init__(self) -> None:
        check_least(self, "regressions.", tasks=8, inputs=1, examples=1, held_out=1)
        if not 0 <= self.correlation < 1 or min(self.noise, self.prior) <= 0:
            raise InvalidArgument(
                f"regressions: correlation={self.correlation}, noise={self.noise}, prior={self.prior} given; expected "
                "a correlation from 0 to below 1, and standard deviations above 0."
            )

    def drawn(self, generator: torch.Generator) -> "Regressions":
        """Draw the data of all tasks, and compute their posteriors."""

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        def inputs(count: int) -> Tensor:
            common, single = math.sqrt(self.correlation), math.sqrt(1 - self.correlation)
            return common * normal(count, 1) + single * normal(count, self.inputs)

        weights = self.prior * normal(self.tasks, self.inputs)
        x, x_test = inputs(self.examples), inputs(self.held_out)
        y, y_test = (part @ weights.T + self.noise * normal(len(part), self.tasks) for part in (x, x_test))
        precision = x.T @ x / self.noise**2 + torch.eye(self.inputs, dtype=torch.float64) / self.prior**2
        covariance = torch.linalg.inv(precision)
        mean = (covariance @ x.T @ y / self.noise**2).T
        best = precision.diagonal().rsqrt().expand_as(mean)
        return Regressions(x, y, x_test, y_test, weights, covariance, mean, best, self.noise)


@dataclass(frozen=True, eq=False)
class Regressions:
    """Regressions in double precision. The best factorised Gaussian has mean `mean`, spread `best`: (tasks, inputs)."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    weights: Tensor
    covariance: Tensor  # of the exact posterior, the same in every task
    mean: Tensor
    best: Tensor
    noise: float

    def to(self, device: torch.device) -> "Regressions":
        return replace(self, **{name: v.to(device) for name, v in vars(self).items() if isinstance(v, Tensor)})

    def predictive(self, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance (held out, tasks) of the targets, for weights of this covariance."""
        variance = (self.x_test @ covariance * self.x_test).sum(1) + self.noise**2
        return self.x_test @ self.mean.T, variance.unsqueeze(1).expand_as(self.y_test)

    def expected(self, level: float) -> Tensor:
        """Return (tasks,): the expected coverage of the best factorised Gaussian over the noise of the targets."""
        mean, variance = self.predictive(self.best[0].square().diag())
        offset, half = self.x_test @ self.weights.T - mean, quantile(level) * variance.sqrt()
        ends = torch.special.ndtr((half - offset) / self.noise) - torch.special.ndtr((-half - offset) / self.noise)
        return ends.mean(0)

    def inside(self, mean: Tensor, variance: Tensor, level: float) -> Tensor:
        """Return (tasks,): the share of held-out targets in their central interval."""
        return ((self.y_test - mean).abs() <= quantile(level) * variance.sqrt()).double().mean(0)


def quantile(level: float) -> float:
    """Return half the width of the central interval of N(0, 1)."""
    return t_quantile((1 + level) / 2, math.inf)
