"""Layers that flipout does not know, and one that is registered."""

import torch
from torch import Tensor, nn

import flipout
from flipout.ops.linear import Linear as LinearOp


def perturbed(model: nn.Module) -> list[str]:
    return [row.parameter for row in flipout.summary(model).rows if row.noise]


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.gain.T


class PerturbedCustom(flipout.nn.Perturbed, Custom, default=("gain",)):
    def forward(self, x: Tensor) -> Tensor:
        if not flipout.nn.is_noisy(self):
            return Custom.forward(self, x)
        return flipout.nn.perturbations(self, x, x.dtype).product(LinearOp(4, 3), x, "gain", None)


class Unknown(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.known, self.bilinear, self.prelu = nn.Linear(4, 4), nn.Bilinear(2, 3, 4), nn.PReLU()
        self.custom, self.single = Custom(), nn.Parameter(torch.ones(2))
