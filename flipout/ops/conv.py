"""Convolutions and their transposes, in one, two and three dimensions."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .base import Gradients, Op


@dataclass(frozen=True)
class Conv(Op):
    """A convolution over dimensions 2 onward, with channels in dimension 1.

    With `bases` stacked weights, the weights become groups of one convolution over folded channels.
    """

    in_features: int  # channels of the input
    out_features: int  # channels of the output
    stride: tuple[int, ...]  # one number for each spatial dimension, as for padding and dilation
    padding: tuple[int, ...]  # zeros on both sides
    dilation: tuple[int, ...]  # spacing of the kernel's elements
    groups: int  # of channels
    transposed: bool = False  # a transposed convolution, whose weight is (in, out, …)
    output_padding: tuple[int, ...] = ()  # of a transposed convolution
    bases: int | None = None  # number of stacked weights, None for one

    in_dim = out_dim = 1
    formed_from = None

    @property
    def s_dim(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The dimension of the weight that the input's channels run over."""
        return 0 if self.transposed else 1

    @property
    def r_dim(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The dimension of the weight that the output's channels run over."""
        return 1 if self.transposed else 0

    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if self.bases is None:
            return torch.convolution(x, weight, bias, *self._options())
        y = self._unfold(torch.convolution(self._fold(x), weight.flatten(0, 1), None, *self._options()))
        return y if bias is None else y + bias.view(-1, *[1] * (x.dim() - 2))

    def infer(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return self.apply(x, weight, bias)

    def put(self, out: Tensor, x: Tensor, weight: Tensor, biases: Tensor | None = None) -> None:
        out.copy_(self.apply(x, weight))
        if biases is not None:
            count, features = biases.shape
            out.view(count, -1, *out.shape[1:]).add_(biases.view(count, 1, features, *[1] * (x.dim() - 2)))

    def gradients(self, grad: Tensor, x: Tensor, weight: Tensor, needs: tuple[bool, bool]) -> Gradients:
        if not any(needs):
            return None, None
        has_one_weight = self.bases is None
        dx, dw, _ = torch.ops.aten.convolution_backward.default(
            grad if has_one_weight else self._fold(grad),
            x if has_one_weight else self._fold(x),
            weight if has_one_weight else weight.flatten(0, 1),
            None,
            *self._options(),
            (*needs, False),
        )
        if has_one_weight:
            return dx, dw
        return self._unfold(dx) if needs[0] else None, dw.view(weight.shape) if needs[1] else None

    def bias_gradient(self, grad: Tensor) -> Tensor:
        return grad.sum([0, *range(2, grad.dim())])

    def batched(self, count: int) -> "Conv":
        return replace(self, bases=count)

    def factored(self, left: Tensor, right: Tensor) -> tuple[tuple[Op, Tensor], tuple[Op, Tensor]]:
        """Return a pointwise convolution by `left` (count, d0, rank) and one by the kernels `right`, for all groups."""
        (count, _, rank), ones = left.shape, (1,) * len(self.stride)
        inner = self.groups * rank
        kernels = right.unsqueeze(1).expand(-1, self.groups, *right.shape[1:]).flatten(1, 2)
        if self.transposed:
            left = left.unflatten(1, (self.groups, -1)).mT.flatten(1, 2)
        mixing = left.reshape(*left.shape, *ones)
        ends = (self.in_features, inner) if self.transposed else (inner, self.out_features)
        pointwise = Conv(*ends, ones, (0,) * len(ones), ones, self.groups, bases=count)
        if self.transposed:
            return (pointwise, mixing), (replace(self, in_features=inner, bases=count), kernels)
        return (replace(self, out_features=inner, bases=count), kernels), (pointwise, mixing)

    def positions(self, x: Tensor, y: Tensor) -> int:
        return math.prod((x if self.transposed else y).shape[2:])

    def _options(self) -> tuple:
        groups = self.groups * (self.bases or 1)
        output_padding = self.output_padding or (0,) * len(self.stride)
        return self.stride, self.padding, self.dilation, self.transposed, output_padding, groups

    def _fold(self, x: Tensor) -> Tensor:
        """Fold (bases · n, C, …) into (n, bases · C, …)."""
        assert self.bases is not None
        return x.unflatten(0, (self.bases, -1)).transpose(0, 1).flatten(1, 2)

    def _unfold(self, y: Tensor) -> Tensor:
        """Unfold (n, bases · C, …) into (bases · n, C, …)."""
        assert self.bases is not None
        return y.unflatten(1, (self.bases, -1)).transpose(0, 1).flatten(0, 1)
