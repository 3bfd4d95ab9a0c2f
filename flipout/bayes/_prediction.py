"""The result of `predict`: mean and uncertainty of the target for each input."""

import math
import warnings
from dataclasses import dataclass

from torch import Tensor

from .._student import t_quantile
from ..draws.bits import is_transformed
from ..errors import InvalidArgument


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """Mean and uncertainty of the target for each input.

    Dimension 0 is the input. For categorical and Bernoulli likelihoods, uncertainties are entropies in nats, and the
    epistemic part is the mutual information of target and weights. For other likelihoods, and for none, they are
    variances.
    """

    mean: Tensor  # (N, …): the expected target, such as the probability of each class
    standard_error: Tensor  # (N, …): Monte Carlo error of the mean, clustered by base; NaN if there is one base
    total: Tensor  # (N, …): the uncertainty of the target
    aleatoric: Tensor  # (N, …): the part that remains if the weights are known
    epistemic: Tensor  # (N, …): the part that comes from the weights, total − aleatoric
    quantiles: Tensor | None  # (quantiles, N, …): quantiles of the expected target over the weights, if requested
    samples: Tensor | None  # (count, N, …): the expected target under each sample, if kept
    count: int  # the number of samples of each input
    bases: int  # the number of bases; samples of different bases are independent

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Return a confidence interval of the mean: the Monte Carlo error from using finitely many samples.

        Args:
            level: The probability that the interval contains the mean over infinitely many samples.

        Returns:
            The lower and the upper end, each of the shape (N, …) of the mean, by Student's t over the bases.

        Raises:
            InvalidArgument: `level` is not between 0 and 1.

        Example:
            >>> low, high = prediction.interval(0.9)
        """
        if not 0 < level < 1:
            raise InvalidArgument(f"interval(level={level!r}): expected a probability between 0 and 1.")
        if self.bases == 1 and not is_transformed():
            warnings.warn(
                f"The {self.count} samples share one base, which says nothing about its own error: the interval is "
                "NaN. Ask for more samples, predict(…, samples=32), or for smaller groups, group=1.",
                RuntimeWarning,
                stacklevel=2,
            )
        half = self.standard_error * (t_quantile((1 + level) / 2, self.bases - 1) if self.bases > 1 else math.nan)
        return self.mean - half, self.mean + half

    def __repr__(self) -> str:
        return f"Prediction(mean of shape {tuple(self.mean.shape)}, count={self.count}, bases={self.bases})"
