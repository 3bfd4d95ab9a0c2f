"""y = x Wᵀ + b over the last dimension."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from . import onednn
from .base import Gradients, Op


@dataclass(unsafe_hash=True)  # not frozen, which takes a microsecond more to make
class Linear(Op):
    in_features: int
    out_features: int
    bases: int | None = None

    in_dim = out_dim = -1
    s_dim, r_dim = 1, 0
    formed_from = 32

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.bases is None:
            if x.device.type == "cpu":
                return F.linear(x, weight, bias)
            turned = x.dim() == 3 and not x.is_contiguous() and x.transpose(0, 1).is_contiguous()
            y = F.linear(*_aligned(x.transpose(0, 1) if turned else x, weight), bias)
            return y.transpose(0, 1) if turned else y
        rows = self._grouped(x)
        # The gradient of the operand on the left comes out in the weight's own layout; with one row that is free.
        y = torch.bmm(weight, rows.mT) if rows.shape[1] == 1 else torch.bmm(rows, weight.mT)
        y = y.view(*x.shape[:-1], self.out_features)
        return y if bias is None else y + bias

    def infer(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        y = onednn.linear(x, weight, bias) if self.bases is None and x.is_cpu else None
        return self.apply(x, weight, bias) if y is None else y

    def put(self, out: Tensor, x: Tensor, weight: Tensor) -> None:
        if self.bases is None:
            out.copy_(self.apply(x, weight))
        else:
            torch.bmm(self._grouped(x), weight.mT, out=out.view(self.bases, -1, self.out_features))

    def gradients(self, grad: Tensor, x: Tensor, weight: Tensor, needs: tuple[bool, bool]) -> Gradients:
        if self.bases is None:
            x, weight = _aligned(x, weight)
            dx = grad @ weight if needs[0] else None
            if x.dim() > 2:
                grad, x = grad.flatten(0, -2), x.flatten(0, -2)
            dw = grad.T @ x if needs[1] else None
            if x.shape[1] > self.in_features:
                dx, dw = (None if made is None else made[..., : self.in_features] for made in (dx, dw))
            return dx, dw
        grouped = self._grouped(grad)
        dx = torch.bmm(grouped, weight).view(x.shape) if needs[0] else None
        dw = torch.bmm(grouped.transpose(1, 2), self._grouped(x)) if needs[1] else None
        return dx, dw

    def bias_gradient(self, grad: Tensor) -> Tensor:
        return grad.flatten(0, -2).sum(0)

    def batched(self, count: int) -> "Linear":
        return Linear(self.in_features, self.out_features, count)

    def factored(self, left: Tensor, right: Tensor) -> tuple[tuple[Op, Tensor], tuple[Op, Tensor]]:
        count, _, rank = left.shape
        return (Linear(self.in_features, rank, count), right), (Linear(rank, self.out_features, count), left)

    def positions(self, x: Tensor, y: Tensor) -> int:
        return x.shape[1:-1].numel()

    def _grouped(self, x: Tensor) -> Tensor:
        assert self.bases is not None
        return x.reshape(self.bases, -1, x.shape[-1])


_LARGE = 2**18  # numbers


def _aligned(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Both with zeros behind their features, where a GPU's matrix product would be slow: its rows want 16 bytes."""
    missing = -x.shape[-1] % (16 // x.itemsize)
    if not (missing and x.is_cuda and x.numel() > _LARGE):
        return x, weight
    return F.pad(x, (0, missing)), F.pad(weight, (0, missing))
