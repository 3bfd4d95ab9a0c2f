"""y = x W + b over the last dimension: the weight of a linear map, stored (in, out)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Gradients, Op


@dataclass(unsafe_hash=True)
class Turned(Op):
    """`Linear` with the weight stored as its transpose, as transformers' `Conv1D` has it."""

    in_features: int
    out_features: int
    bases: int | None = None

    in_dim = out_dim = -1
    s_dim, r_dim = 0, 1
    formed_from = None

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.bases is None:
            y = x @ weight
        else:
            y = torch.bmm(self._grouped(x), weight).view(*x.shape[:-1], self.out_features)
        return y if bias is None else y + bias

    def infer(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return self.apply(x, weight, bias)

    def add_to(self, y: Tensor, x: Tensor, weight: Tensor) -> None:
        """Add apply(x, weight) to y in place, with x and y as rows and one weight. Called without autograd only."""
        y.addmm_(x, weight)

    def put(self, out: Tensor, x: Tensor, weight: Tensor, biases: Tensor | None = None) -> None:
        out.copy_(self.apply(x, weight))
        if biases is not None:
            out.view(len(biases), -1, self.out_features).add_(biases.unsqueeze(1))

    def gradients(self, grad: Tensor, x: Tensor, weight: Tensor, needs: tuple[bool, bool]) -> Gradients:
        if self.bases is None:
            dx = grad @ weight.mT if needs[0] else None
            dw = x.flatten(0, -2).mT @ grad.flatten(0, -2) if needs[1] else None
            return dx, dw
        grouped = self._grouped(grad)
        dx = torch.bmm(grouped, weight.mT).view(x.shape) if needs[0] else None
        dw = torch.bmm(self._grouped(x).mT, grouped) if needs[1] else None
        return dx, dw

    def bias_gradient(self, grad: Tensor) -> Tensor:
        return grad.flatten(0, -2).sum(0)

    def batched(self, count: int) -> "Turned":
        return Turned(self.in_features, self.out_features, count)

    def factored(self, left: Tensor, right: Tensor) -> tuple[tuple[Op, Tensor], tuple[Op, Tensor]]:
        count, _, rank = left.shape
        return (Turned(self.in_features, rank, count), left), (Turned(rank, self.out_features, count), right)

    def positions(self, x: Tensor, y: Tensor) -> int:
        return x.shape[1:-1].numel()

    def _grouped(self, x: Tensor) -> Tensor:
        assert self.bases is not None
        return x.reshape(self.bases, -1, x.shape[-1])
