"""Norm layers whose affine Parameters are perturbed, where `where` names them."""

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
    """Normalise as torch does, without the affine part; then scale and shift each example by its own."""

    @abstractmethod
    def _beside(self, vector: Tensor, y: Tensor) -> Tensor:
        """(rows or 1, *shape) in a shape that broadcasts to y, whose dimension 0 is the rows."""

    def _scaled(self, y: Tensor) -> Tensor:
        """In the Parameters' own dtype, also where torch normalises in a lower one."""
        layer: Any = self
        noise = perturbations(self, y, layer.weight.dtype)
        made = y * self._beside(noise.vector("weight"), y)
        if getattr(layer, "bias", None) is not None:
            made = made + self._beside(noise.vector("bias"), y)
        return made.to(y.dtype)

    def _check_dtype(self, input: Tensor) -> None:
        """As torch, float32 Parameters take half precision too."""
        layer: Any = self
        if not isinstance(input, Tensor):
            raise not_a_tensor(self, input)
        if input.dtype not in (torch.bfloat16, torch.float16) or layer.weight.dtype != torch.float32:
            compute_dtype(self, input, layer.weight)

    def _refuse(self, input: Tensor, expected: str) -> InvalidInput:
        return InvalidInput(f"{label_of(self)}: input of shape {tuple(input.shape)}; expected {expected}.")


class _OverLast(_Norm):
    """The Parameters have the shape of the last dimensions."""

    def _check(self, input: Tensor) -> None:
        layer: Any = self
        shape = layer.normalized_shape
        self._check_dtype(input)
        if input.shape[-len(shape) :] != shape:
            raise self._refuse(input, f"(…, {', '.join(map(str, shape))}): normalized_shape last")

    def _rescale(self, input: Tensor, normalised: Tensor) -> Tensor:
        layer: Any = self
        y, batch_dim = rows_first(self, normalised, len(layer.normalized_shape))
        made = self._scaled(y)
        return rows_back(made, batch_dim)

    def _beside(self, vector: Tensor, y: Tensor) -> Tensor:
        return vector.reshape(vector.shape[0], *[1] * (y.dim() - vector.dim()), *vector.shape[1:])


class _OverChannels(_Norm, fixed_layout="(N, C, …)"):
    """The Parameters run over dimension 1; dimension 0 is the example, as it is for torch."""

    def _check(self, input: Tensor, channels: int) -> None:
        self._check_dtype(input)
        if input.dim() < 2 or input.shape[1] != channels:
            raise self._refuse(input, f"(N, {channels}, …)")

    def _beside(self, vector: Tensor, y: Tensor) -> Tensor:
        return vector.reshape(*vector.shape, *[1] * (y.dim() - 2))


class LayerNorm(_OverLast, nn.LayerNorm):
    """`torch.nn.LayerNorm` over the last dimensions of (N, …): a scale and a shift for each example, where named."""

    def forward(self, input: Tensor) -> Tensor:
        if not is_noisy(self):
            return nn.LayerNorm.forward(self, input)
        self._check(input)
        return self._rescale(input, F.layer_norm(input, self.normalized_shape, None, None, self.eps))


class RMSNorm(_OverLast, nn.RMSNorm):
    """`torch.nn.RMSNorm` over the last dimensions of (N, …): a scale for each example, where named."""

    def forward(self, x: Tensor) -> Tensor:
        if not is_noisy(self):
            return nn.RMSNorm.forward(self, x)
        self._check(x)
        return self._rescale(x, F.rms_norm(x, self.normalized_shape, None, self.eps))


class GroupNorm(_OverChannels, nn.GroupNorm):
    """`torch.nn.GroupNorm` of (N, C, …): a scale and a shift of (C,) for each example, where named."""

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
        # torch's own bookkeeping: an exponential average, or a cumulative one where momentum is None.
        factor = 0.0 if layer.momentum is None else layer.momentum
        if self.training and layer.track_running_stats and layer.num_batches_tracked is not None:
            layer.num_batches_tracked.add_(1)
            if layer.momentum is None:
                factor = 1.0 / float(layer.num_batches_tracked)
        by_batch = self.training or (layer.running_mean is None and layer.running_var is None)
        tracked = not self.training or layer.track_running_stats
        mean, var = (layer.running_mean, layer.running_var) if tracked else (None, None)
        return self._scaled(F.batch_norm(input, mean, var, None, None, by_batch, factor, layer.eps))


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` of (N, C) or (N, C, L): a scale and a shift of (C,) for each example, where named."""


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` of (N, C, H, W): a scale and a shift of (C,) for each example, where named."""


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """`torch.nn.BatchNorm3d` of (N, C, D, H, W): a scale and a shift of (C,) for each example, where named."""
