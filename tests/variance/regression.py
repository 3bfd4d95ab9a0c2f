"""A linear regression whose α, β and γ are known in closed form. docs/variance.md derives them.

Output w·x with w = w̄ ∘ (1 + σε), loss ½ (w·x − t)², x ~ N(0, I), t = (w̄ − u)·x + η, η ~ N(0, s²).
"""

import torch
from torch import Tensor, nn

import flipout

MEAN = torch.tensor([0.8, -0.5, 0.3], dtype=torch.float64)
OFFSET = torch.tensor([0.4, 0.2, -0.6], dtype=torch.float64)  # u
SIGMA, NOISE = 0.7, 0.5


def model() -> nn.Module:
    layer = nn.Linear(3, 1, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(MEAN)
    return flipout.perturb(nn.Sequential(layer), flipout.MultiplicativeGaussian(SIGMA))


def data(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randn(size, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(size, 1, generator=generator, dtype=torch.float64) * NOISE
    return x, x @ (MEAN - OFFSET).unsqueeze(1) + noise


def loss(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean() / 2


def truth() -> dict[str, float]:
    """Return α, β and γ, averaged over the three entries."""
    w, u, v = MEAN, OFFSET, SIGMA**2
    second = (1 + v) * (u.square().sum() + 2 * u.square() + NOISE**2) + 12 * v * w * u
    second = second + v * (1 + v) * (w.square().sum() + 2 * w.square()) + 6 * v**2 * w.square()
    alpha = second - (u + v * w).square()
    beta, gamma = v * (w + u).square(), 2 * v**2 * w.square()
    return {"alpha": float(alpha.mean()), "beta": float(beta.mean()), "gamma": float(gamma.mean())}


def variance(scheme: str, size: int) -> float:
    known = truth()
    covariance = {"independent": 0.0, "flipout": known["gamma"], "shared": known["beta"] + known["gamma"]}[scheme]
    return known["alpha"] / size + (size - 1) / size * covariance
