"""Layers that do what the design's list of other libraries' errors says, each in a few lines."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flipout import testing


def signs(*shape: int) -> Tensor:
    return torch.randint(2, shape) * 2.0 - 1


class Noisy(nn.Module):
    """A weight of mean `weight` and standard deviation softplus(rho)."""

    def __init__(self, plain: nn.Module, product: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        weight: Any = plain.weight
        self.weight = nn.Parameter(weight.detach().clone())
        self.rho = nn.Parameter(torch.full_like(self.weight, -0.5))
        self.product = product
        self.claim = testing.Claim(plain, {"weight": self.weight}, {"weight": self.std}, prior=(0.0, 1.0))

    def std(self) -> Tensor:
        return F.softplus(self.rho)

    def kl(self) -> Tensor:
        return torch.distributions.kl_divergence(
            torch.distributions.Normal(self.weight, self.std()), torch.distributions.Normal(0.0, 1.0)
        )

    def delta(self) -> Tensor:
        return self.std() * torch.randn_like(self.weight)


class Right(Noisy):
    """Flipout as the paper has it. Dimensions 0 and `features` of x and y have signs."""

    def __init__(self, plain: nn.Module, product: Callable[[Tensor, Tensor], Tensor], features: int) -> None:
        super().__init__(plain, product)
        self.features = features

    def flips(self, like: Tensor) -> Tensor:
        shape = [1] * like.dim()
        shape[0], shape[self.features] = like.shape[0], like.shape[self.features]
        return signs(*shape)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return self.product(x, self.weight)
        y = self.product(x, self.weight)
        return y + self.flips(y) * self.product(x * self.flips(x), self.delta())


class SignsPerPosition(Right):
    def flips(self, like: Tensor) -> Tensor:
        return signs(*like.shape)


class FloatSigns(Right):
    def flips(self, like: Tensor) -> Tensor:
        return super().flips(like) * torch.rand(like.shape[0], *[1] * (like.dim() - 1)) * 1.5


class SkewedSigns(Right):
    """Uniform over (−1, 3), as `2 * uniform(0, 2) - 1` is: its mean is not 0."""

    def flips(self, like: Tensor) -> Tensor:
        return super().flips(like).abs() * (torch.rand(like.shape[0], *[1] * (like.dim() - 1)) * 4 - 1)


class MeanInDelta(Right):
    def delta(self) -> Tensor:
        return self.weight + super().delta()


class NoiseInEval(Right):
    def forward(self, x: Tensor) -> Tensor:
        y = self.product(x, self.weight)
        return y + self.flips(y) * self.product(x * self.flips(x), self.delta())


class FaintNoiseInEval(Right):
    """Too little to see beside the training noise, and too much for rounding."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y if self.training else y + 1e-4 * torch.randn_like(y)


class TenPercentWide(Right):
    def delta(self) -> Tensor:
        return 1.1 * super().delta()


class SharedByPairs(Right):
    """Two neighbours see the same weights."""

    def flips(self, like: Tensor) -> Tensor:
        found = super().flips(like)
        found[1::2] = found[: len(found) - len(found) % 2 : 2]
        return found


class LouderForLargeInputs(Right):
    """Noise that depends on more than the weights."""

    def forward(self, x: Tensor) -> Tensor:
        mean, y = self.product(x, self.weight), super().forward(x)
        sizes = x.abs().mean([*range(1, x.dim())], keepdim=True)
        return mean + (y - mean) * (1 + sizes.tanh() / 2) if self.training else y


class GradientOfSpread(Right):
    """The right outputs, with a gradient of the spread that is half too large."""

    def delta(self) -> Tensor:
        found = super().delta()
        return found + (found - found.detach()) / 2


class Reseeds(Right):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        torch.manual_seed(int(torch.rand(()) > 2))
        return y


class UniformNoise(Right):
    """The right standard deviation, another shape."""

    def delta(self) -> Tensor:
        return self.std() * (torch.rand_like(self.weight) - 0.5) * 12**0.5


class DetachedSpread(Right):
    def delta(self) -> Tensor:
        return super().delta().detach()


class HeldNoise(Right):
    """The same draw until somebody resets it."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return super().forward(x)


class RedrawnSteps(nn.Module):
    """An RNN whose recurrent weight is drawn anew at every time step."""

    def __init__(self, width: int = 4, *, redraw: bool = True) -> None:
        super().__init__()
        self.plain = nn.RNN(width, width, batch_first=True, bias=False)
        self.redraw = redraw
        spread = {"weight_hh_l0": 0.4, "weight_ih_l0": 0.4}
        self.claim = testing.Claim(self.plain, dict(self.plain.named_parameters()), spread)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), x.shape[2])
        steps, noise = [], [torch.randn(len(x), 4, 4) for _ in range(2)]
        for t in range(x.shape[1]):
            if self.redraw:
                noise = [torch.randn(len(x), 4, 4) for _ in range(2)]
            inner = self.plain.get_parameter("weight_ih_l0") + 0.4 * noise[0]
            outer = self.plain.get_parameter("weight_hh_l0") + 0.4 * noise[1]
            h = torch.tanh((inner @ x[:, t, :, None] + outer @ h[..., None]).squeeze(-1))
            steps.append(h)
        return torch.stack(steps, 1)


def linear(kind: type[Right]) -> Right:
    return kind(nn.Linear(5, 4, bias=False), F.linear, -1)


def conv(kind: type[Right]) -> Right:
    return kind(nn.Conv2d(2, 3, 3, padding=1, bias=False), lambda x, w: F.conv2d(x, w, padding=1), 1)
