"""y = x Wᵀ + b over the last dimension."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from . import onednn
from .base import Gradients, Op


@dataclass(unsafe_hash=True)  # not frozen: creating a frozen one takes a microsecond more
class Linear(Op):
    """A matrix product over the last dimension, with one weight or with `bases` stacked weights."""

    in_features: int  # size of the input's last dimension
    out_features: int  # size of the output's last dimension
    bases: int | None = None  # number of stacked weights, None for one

    in_dim = out_dim = -1
    s_dim, r_dim = 1, 0
    formed_from = 32

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.bases is None:
            if x.device.type == "cpu":
                return F.linear(x, weight, bias)
            is_transposed = x.dim() == 3 and not x.is_contiguous() and x.transpose(0, 1).is_contiguous()
            y = F.linear(*_aligned(x.transpose(0, 1) if is_transposed else x, weight), bias)
            return y.transpose(0, 1) if is_transposed else y
        rows = self._grouped(x)
        # The left operand's gradient comes out in its own layout. With one row the weight can be on the left for free.
        y = torch.bmm(weight, rows.mT) if rows.shape[1] == 1 else torch.bmm(rows, weight.mT)
        y = y.view(*x.shape[:-1], self.out_features)
        return y if bias is None else y + bias

    def infer(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        y = onednn.infer_linear(x, weight, bias) if self.bases is None and x.is_cpu else None
        return self.apply(x, weight, bias) if y is None else y

    def add_to(self, y: Tensor, x: Tensor, weight: Tensor) -> None:
        """Add apply(x, weight) to y in place, with x and y as rows and one weight. Called without autograd only.

        Args:
            y: The rows to add to, (rows, out).
            x: The input, (rows, in).
            weight: The weight.
        """
        rows, weight = _aligned(x, weight)
        y.addmm_(rows, weight.T)

    def put(self, out: Tensor, x: Tensor, weight: Tensor, biases: Tensor | None = None) -> None:
        if self.bases is None:
            out.copy_(self.apply(x, weight, biases))
            return
        rows, out = self._grouped(x), out.view(self.bases, -1, self.out_features)
        if biases is None:
            torch.bmm(rows, weight.mT, out=out)
        else:
            torch.baddbmm(biases.unsqueeze(1), rows, weight.mT, out=out)

    def gradients(self, grad: Tensor, x: Tensor, weight: Tensor, needs: tuple[bool, bool]) -> Gradients:
        if self.bases is None:
            x, weight = _aligned(x, weight)
            dx = grad @ weight if needs[0] else None
            if x.dim() > 2:
                grad, x = grad.flatten(0, -2), x.flatten(0, -2)
            dw = grad.T @ x if needs[1] else None
            if x.shape[1] > self.in_features:
                dx, dw = (None if padded is None else padded[..., : self.in_features] for padded in (dx, dw))
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


_LARGE = 2**18  # smaller inputs are not padded


def _aligned(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Pad the features with zeros to rows of 16 bytes, where a GPU's matrix product would be slow without."""
    missing = -x.shape[-1] % (16 // x.itemsize)
    if not (missing and x.is_cuda and x.numel() > _LARGE):
        return x, weight
    return F.pad(x, (0, missing)), F.pad(weight, (0, missing))
