"""Normalise observations by running statistics."""

import torch
from torch import Tensor, nn


class Normalizer(nn.Module):
    """Normalise observations: (x − mean) / std over all observations so far, clipped to ±5, as Salimans et al. do.

    The statistics are buffers, so they are saved and sent with the model. `Episodes` updates them after each
    generation.

    Args:
        shape: Shape of one observation.

    Example:
        >>> policy = nn.Sequential(flipout.es.rl.Normalizer(4), nn.Linear(4, 2))
    """

    LEAST = 1e-2  # smallest variance; also the weight of the initial mean 0 and variance 1
    BOUND = 5.0
    count: Tensor
    total: Tensor
    squares: Tensor

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(self.LEAST, dtype=torch.float64))
        self.register_buffer("total", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("squares", torch.full(shape, self.LEAST, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised observations, (…, *shape)."""
        mean = self.total / self.count
        std = (self.squares / self.count - mean.square()).clamp_min(self.LEAST).sqrt()
        return ((x - mean) / std).clamp(-self.BOUND, self.BOUND).to(x.dtype)

    @torch.no_grad()
    def add(self, observations: Tensor) -> None:
        """Add observations to the statistics.

        Args:
            observations: (…, *shape).

        Example:
            >>> normalizer.add(torch.randn(100, 4))
        """
        seen = observations.detach().to(self.total).reshape(-1, *self.total.shape)
        self.count += len(seen)
        self.total += seen.sum(0)
        self.squares += seen.square().sum(0)

    def extra_repr(self) -> str:
        """Return the shape of an observation, and how many were seen."""
        return f"{', '.join(map(str, self.total.shape))}, seen={float(self.count):.0f}"
