"""Norm layers whose scale and shift have noise, if `where` selects them."""

from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InvalidInput
from .base import Perturbed
from .call import is_noisy, perturbations
from .inputs import compute_dtype, not_a_tensor, rows_back, rows_first
from .layers import label_of


class _Norm(Perturbed, optional=("weight", "bias"), vectors=("weight", "bias")):
    """Normalise as torch does, then scale and shift each example with its own weight and bias."""

    @abstractmethod
    def _aligned(self, vector: Tensor, y: Tensor) -> Tensor:
        """Reshape a vector, (rows or 1, *shape), so that it broadcasts to y, (rows, …)."""

    def _scaled(self, y: Tensor) -> Tensor:
        """Scale and shift y, (rows, …), in the dtype of the Parameters, even if torch normalises in a lower one."""
        layer: Any = self
        noise = perturbations(self, y, layer.weight.dtype)
        scaled = y * self._aligned(noise.vector("weight"), y)
        if getattr(layer, "bias", None) is not None:
            scaled = scaled + self._aligned(noise.vector("bias"), y)
        return scaled.to(y.dtype)

    def _check_dtype(self, input: Tensor) -> None:
        """Refuse a wrong dtype. As in torch, a layer with float32 Parameters takes half precision too."""
        layer: Any = self
        if not isinstance(input, Tensor):
            raise not_a_tensor(self, input)
        if input.dtype not in (torch.bfloat16, torch.float16) or layer.weight.dtype != torch.float32:
            compute_dtype(self, input, layer.weight)

    def _wrong_shape(self, input: Tensor, expected: str) -> InvalidInput:
        return InvalidInput(f"{label_of(self)}: input of shape {tuple(input.shape)}; expected {expected}.")


class _OverLast(_Norm):
    """The Parameters have the shape of the last dimensions of the input."""

    def _check(self, input: Tensor) -> None:
        layer: Any = self
        shape = layer.normalized_shape
        self._check_dtype(input)
        if input.shape[-len(shape) :] != shape:
            raise self._wrong_shape(input, f"(…, {', '.join(map(str, shape))}): normalized_shape last")

    def _rescale(self, normalised: Tensor) -> Tensor:
        layer: Any = self
        y, batch_dim = rows_first(self, normalised, len(layer.normalized_shape))
        return rows_back(self._scaled(y), batch_dim)

    def _aligned(self, vector: Tensor, y: Tensor) -> Tensor:
        return vector.reshape(vector.shape[0], *[1] * (y.dim() - vector.dim()), *vector.shape[1:])


class _OverChannels(_Norm, fixed_layout="(N, C, …)"):
    """The Parameters run over dimension 1. Dimension 0 is the example, as in torch."""

    def _check(self, input: Tensor, channels: int) -> None:
        self._check_dtype(input)
        if input.dim() < 2 or input.shape[1] != channels:
            raise self._wrong_shape(input, f"(N, {channels}, …)")

    def _aligned(self, vector: Tensor, y: Tensor) -> Tensor:
        return vector.reshape(*vector.shape, *[1] * (y.dim() - 2))


class LayerNorm(_OverLast, nn.LayerNorm):
    """`torch.nn.LayerNorm` of (N, …): each example has its own scale and shift, if `where` selects them.

    Example:
        >>> layer = flipout.nn.LayerNorm(512, distribution=flipout.Gaussian(0.1), where="*")
    """

    def forward(self, input: Tensor) -> Tensor:
        if not is_noisy(self):
            return nn.LayerNorm.forward(self, input)
        self._check(input)
        return self._rescale(F.layer_norm(input, self.normalized_shape, None, None, self.eps))


class RMSNorm(_OverLast, nn.RMSNorm):
    """`torch.nn.RMSNorm` of (N, …): each example has its own scale, if `where` selects it.

    Example:
        >>> layer = flipout.nn.RMSNorm(512, distribution=flipout.Gaussian(0.1), where="*")
    """

    def forward(self, x: Tensor) -> Tensor:
        if not is_noisy(self):
            return nn.RMSNorm.forward(self, x)
        self._check(x)
        return self._rescale(F.rms_norm(x, self.normalized_shape, None, self.eps))


class GroupNorm(_OverChannels, nn.GroupNorm):
    """`torch.nn.GroupNorm` of (N, C, …): each example has its own scale and shift, if `where` selects them.

    Example:
        >>> layer = flipout.nn.GroupNorm(4, 64, distribution=flipout.Gaussian(0.1), where="*")
    """

    def forward(self, input: Tensor) -> Tensor:
        if not is_noisy(self):
            return nn.GroupNorm.forward(self, input)
        self._check(input, self.num_channels)
        return self._scaled(F.group_norm(input, self.num_groups, None, None, self.eps))


class _BatchNorm(_OverChannels):
    def forward(self, input: Tensor) -> Tensor:
        if not is_noisy(self):
            return super().forward(input)
        layer: Any = self
        self._check(input, layer.num_features)
        layer._check_input_dim(input)
        # As torch does it: an exponential average, or a cumulative one if momentum is None.
        factor = 0.0 if layer.momentum is None else layer.momentum
        if self.training and layer.track_running_stats and layer.num_batches_tracked is not None:
            layer.num_batches_tracked.add_(1)
            if layer.momentum is None:
                factor = 1.0 / float(layer.num_batches_tracked)
        uses_batch_statistics = self.training or (layer.running_mean is None and layer.running_var is None)
        is_tracked = not self.training or layer.track_running_stats
        mean, var = (layer.running_mean, layer.running_var) if is_tracked else (None, None)
        return self._scaled(F.batch_norm(input, mean, var, None, None, uses_batch_statistics, factor, layer.eps))


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` of (N, C) or (N, C, L): own scale and shift for each example, if `where` selects them.

    Example:
        >>> layer = flipout.nn.BatchNorm1d(64, distribution=flipout.Gaussian(0.1), where="*")
    """


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` of (N, C, H, W): own scale and shift for each example, if `where` selects them.

    Example:
        >>> layer = flipout.nn.BatchNorm2d(64, distribution=flipout.Gaussian(0.1), where="*")
    """


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """`torch.nn.BatchNorm3d` of (N, C, D, H, W): own scale and shift for each example, if `where` selects them.

    Example:
        >>> layer = flipout.nn.BatchNorm3d(64, distribution=flipout.Gaussian(0.1), where="*")
    """
