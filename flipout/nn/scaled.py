"""Layers whose inputs and outputs are scaled feature by feature: noise on the scales is a rank-one posterior.

The weight of an example is r ∘ W ∘ s, with its own output scales r and input scales s. W itself has no noise unless
`where` selects it.
"""

from abc import abstractmethod
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InvalidInput
from ..ops.base import Op
from ..ops.linear import Linear as LinearOp
from .base import Perturbed
from .call import is_noisy, perturbations
from .conv import op_and_padded_input, with_batch
from .inputs import compute_dtype, not_a_tensor, rows_back, rows_first
from .layers import label_of

SCALES = ("input_scale", "output_scale")


class Scaled(nn.Module):
    """A torch layer with one scale for each input feature and one for each output feature, all 1 at first."""

    undecayed: ClassVar[tuple[str, ...]] = SCALES  # weight decay must spare them: they belong near 1
    input_scale: nn.Parameter
    output_scale: nn.Parameter

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        add_scales(self)

    def reset_parameters(self) -> None:
        super().reset_parameters()  # pyright: ignore[reportAttributeAccessIssue]
        for name in SCALES:
            if name in self._parameters:  # torch's own __init__ calls this method before there are any
                nn.init.ones_(getattr(self, name))


class ScaledLinear(Scaled, nn.Linear):
    """`torch.nn.Linear` with scales: y = r ∘ (W (s ∘ x)) + b, where s is `input_scale` and r is `output_scale`.

    Example:
        >>> layer = flipout.nn.ScaledLinear(784, 512)
    """

    def forward(self, input: Tensor) -> Tensor:
        y = F.linear(input * self.input_scale, self.weight) * self.output_scale
        return y if self.bias is None else y + self.bias


class _ScaledConv(Scaled):
    def forward(self, input: Tensor) -> Tensor:
        layer: Any = self
        spatial = [1] * len(layer.kernel_size)
        y = layer._conv_forward(input * layer.input_scale.view(-1, *spatial), layer.weight, None)
        y = y * layer.output_scale.view(-1, *spatial)
        return y if layer.bias is None else y + layer.bias.view(-1, *spatial)


class ScaledConv1d(_ScaledConv, nn.Conv1d):
    """`torch.nn.Conv1d` with one scale for each input channel and one for each output channel.

    Example:
        >>> layer = flipout.nn.ScaledConv1d(3, 64, 3)
    """


class ScaledConv2d(_ScaledConv, nn.Conv2d):
    """`torch.nn.Conv2d` with one scale for each input channel and one for each output channel.

    Example:
        >>> layer = flipout.nn.ScaledConv2d(3, 64, 3)
    """


class ScaledConv3d(_ScaledConv, nn.Conv3d):
    """`torch.nn.Conv3d` with one scale for each input channel and one for each output channel.

    Example:
        >>> layer = flipout.nn.ScaledConv3d(3, 64, 3)
    """


def add_scales(layer: nn.Module) -> None:
    """Register the scales of a linear layer or a convolution, with the value 1."""
    plain: Any = layer
    is_linear = isinstance(layer, nn.Linear)
    sizes = (plain.in_features, plain.out_features) if is_linear else (plain.in_channels, plain.out_channels)
    for name, size in zip(SCALES, sizes, strict=True):
        layer.register_parameter(name, nn.Parameter(plain.weight.detach().new_ones(size)))


class _RankOne(Perturbed, default=SCALES, optional=("weight", "bias"), vectors=(*SCALES, "bias")):
    @abstractmethod
    def _align(self, vector: Tensor, dims: int) -> Tensor:
        """Reshape a vector, (rows or 1, features), so that it broadcasts to a tensor (rows, …) of `dims` dimensions."""

    def _scaled_product(self, op: Op, x: Tensor) -> Tensor:
        """Return the output (rows, …) for x (rows, …), each example under its own scales."""
        layer: Any = self
        noise = perturbations(self, x, compute_dtype(self, x, layer.weight))
        x = x.to(noise.dtype) * self._align(noise.vector("input_scale"), x.dim())
        y = noise.product(op, x, "weight")
        y = y * self._align(noise.vector("output_scale"), y.dim())
        return y if layer.bias is None else y + self._align(noise.vector("bias"), y.dim())


class RankOneLinear(_RankOne, ScaledLinear):
    """`ScaledLinear` with noise on its scales: each example has the weight r ∘ W ∘ s, with its own r and s.

    Arguments are torch's own and, by keyword, `distribution`, `scheme` and `where`, as in every layer of `flipout.nn`.
    `flipout.bayes.rank_one` converts a whole model.

    Example:
        >>> prior = flipout.bayes.Normal(1.0, 0.1)
        >>> layer = flipout.nn.RankOneLinear(784, 512, distribution=flipout.MeanField(std=0.05, prior=prior))
    """

    def forward(self, input: Tensor) -> Tensor:
        if not is_noisy(self):
            return ScaledLinear.forward(self, input)
        if not isinstance(input, Tensor):
            raise not_a_tensor(self, input)
        if input.dim() == 0 or input.shape[-1] != self.in_features:
            raise InvalidInput(
                f"{label_of(self)}: input of shape {tuple(input.shape)}; expected (…, {self.in_features})."
            )
        x, place = rows_first(self, input, 1)
        return rows_back(self._scaled_product(LinearOp(self.in_features, self.out_features), x), place)

    def _align(self, vector: Tensor, dims: int) -> Tensor:
        return vector.view(vector.shape[0], *[1] * (dims - 2), vector.shape[1])


class _RankOneConv(_RankOne, fixed_layout="(N, C, …)"):
    def forward(self, input: Tensor) -> Tensor:
        if not is_noisy(self):
            return super().forward(input)
        x, has_batch = with_batch(self, input)
        op, x = op_and_padded_input(self, x)
        y = self._scaled_product(op, x)
        return y if has_batch else y.squeeze(0)

    def _align(self, vector: Tensor, dims: int) -> Tensor:
        return vector.view(*vector.shape, *[1] * (dims - 2))


class RankOneConv1d(_RankOneConv, ScaledConv1d):
    """`ScaledConv1d` with noise on its scales: each example has its own scales of the channels.

    Example:
        >>> layer = flipout.nn.RankOneConv1d(3, 64, 3, distribution=flipout.MeanField(std=0.05))
    """


class RankOneConv2d(_RankOneConv, ScaledConv2d):
    """`ScaledConv2d` with noise on its scales: each example has its own scales of the channels.

    Example:
        >>> layer = flipout.nn.RankOneConv2d(3, 64, 3, distribution=flipout.MeanField(std=0.05))
    """


class RankOneConv3d(_RankOneConv, ScaledConv3d):
    """`ScaledConv3d` with noise on its scales: each example has its own scales of the channels.

    Example:
        >>> layer = flipout.nn.RankOneConv3d(3, 64, 3, distribution=flipout.MeanField(std=0.05))
    """
