"""Convolutions and transposed convolutions with stochastic kernels."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InvalidInput
from ..ops.conv import Conv
from .base import Perturbed
from .call import is_noisy, perturbations
from .inputs import compute_dtype, not_a_tensor
from .layers import label_of
from .remembered_call import call_as_remembered, remember_call
from .row_count import single_example


def with_batch(layer: Perturbed, input: Tensor) -> tuple[Tensor, bool]:
    """Return the input of a convolution with a batch dimension, and whether it came with one."""
    plain: Any = layer
    spatial = len(plain.kernel_size)
    if not isinstance(input, Tensor):
        raise not_a_tensor(layer, input)
    if input.dim() not in (spatial + 1, spatial + 2) or input.shape[-spatial - 1] != plain.in_channels:
        raise InvalidInput(
            f"{label_of(layer)}: input of shape {tuple(input.shape)}; expected (N, {plain.in_channels}, …) with "
            f"{spatial} spatial dimension(s), or the same without N."
        )
    has_batch = input.dim() == spatial + 2
    return input if has_batch else single_example(layer, input), has_batch


def op_and_padded_input(layer: Perturbed, x: Tensor) -> tuple[Conv, Tensor]:
    """Return the op of a convolution that is not transposed, and its input, padded where the op cannot pad itself."""
    plain: Any = layer
    padding = plain.padding
    pads: list[int] = plain._reversed_padding_repeated_twice
    if plain.padding_mode != "zeros" or (padding == "same" and pads[::2] != pads[1::2]):
        x = F.pad(x, pads, "constant" if plain.padding_mode == "zeros" else plain.padding_mode)
        padding = (0,) * len(plain.kernel_size)
    elif isinstance(padding, str):
        padding = tuple(pads[::2][::-1])
    return Conv(plain.in_channels, plain.out_channels, plain.stride, padding, plain.dilation, plain.groups), x


class _Convolution(Perturbed, default=("weight",), optional=("bias",), fixed_layout="(N, C, …)"):
    """All positions of an example see the kernel of that example."""

    def _convolve(self, op: Conv, x: Tensor, has_batch: bool) -> Tensor:
        layer: Any = self
        noise = perturbations(self, x, compute_dtype(self, x, layer.weight))
        y = noise.affine(op, x)
        is_simple = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        if has_batch and is_simple:
            remember_call(self, noise, op, x, y)
        return y if has_batch else y.squeeze(0)


class _Conv(_Convolution, remembered_options=("stride", "padding", "dilation", "groups", "padding_mode")):
    def forward(self, input: Tensor) -> Tensor:
        y = call_as_remembered(self, input)
        if y is not None:
            return y
        if not is_noisy(self):
            return super().forward(input)
        x, has_batch = with_batch(self, input)
        op, x = op_and_padded_input(self, x)
        return self._convolve(op, x, has_batch)


class _ConvTranspose(_Convolution):
    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        layer: Any = self
        if not is_noisy(self):
            return super().forward(input, output_size)  # pyright: ignore[reportCallIssue]
        x, has_batch = with_batch(self, input)
        spatial = len(layer.kernel_size)
        output_padding = layer._output_padding(
            input, output_size, layer.stride, layer.padding, layer.kernel_size, spatial, layer.dilation
        )
        op = Conv(
            layer.in_channels,
            layer.out_channels,
            layer.stride,
            layer.padding,
            layer.dilation,
            layer.groups,
            transposed=True,
            output_padding=tuple(output_padding),
        )
        return self._convolve(op, x, has_batch)


class Conv1d(_Conv, nn.Conv1d):
    """`torch.nn.Conv1d` with noise: (N, in, L) → (N, out, L′), one kernel per example.

    All positions of an example see the same kernel.

    Example:
        >>> layer = flipout.nn.Conv1d(3, 64, 3, distribution=flipout.MeanField())
    """


class Conv2d(_Conv, nn.Conv2d):
    """`torch.nn.Conv2d` with noise: (N, in, H, W) → (N, out, H′, W′), one kernel per example.

    All positions of an example see the same kernel.

    Example:
        >>> layer = flipout.nn.Conv2d(3, 64, 3, distribution=flipout.MeanField())
    """


class Conv3d(_Conv, nn.Conv3d):
    """`torch.nn.Conv3d` with noise: (N, in, D, H, W) → (N, out, D′, H′, W′), one kernel per example.

    All positions of an example see the same kernel.

    Example:
        >>> layer = flipout.nn.Conv3d(3, 64, 3, distribution=flipout.MeanField())
    """


class ConvTranspose1d(_ConvTranspose, nn.ConvTranspose1d):
    """`torch.nn.ConvTranspose1d` with noise: (N, in, L) → (N, out, L′), one kernel per example.

    All positions of an example see the same kernel.

    Example:
        >>> layer = flipout.nn.ConvTranspose1d(64, 3, 3, distribution=flipout.MeanField())
    """


class ConvTranspose2d(_ConvTranspose, nn.ConvTranspose2d):
    """`torch.nn.ConvTranspose2d` with noise: (N, in, H, W) → (N, out, H′, W′), one kernel per example.

    All positions of an example see the same kernel.

    Example:
        >>> layer = flipout.nn.ConvTranspose2d(64, 3, 3, distribution=flipout.MeanField())
    """


class ConvTranspose3d(_ConvTranspose, nn.ConvTranspose3d):
    """`torch.nn.ConvTranspose3d` with noise: (N, in, D, H, W) → (N, out, D′, H′, W′), one kernel per example.

    All positions of an example see the same kernel.

    Example:
        >>> layer = flipout.nn.ConvTranspose3d(64, 3, 3, distribution=flipout.MeanField())
    """
