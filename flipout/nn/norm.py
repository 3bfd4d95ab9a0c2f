"""Norm layers whose affine Parameters are perturbed, where `where` names them."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .base import Perturbed


class _Norm(Perturbed):
    """Normalise as torch does, without the affine part; then scale and shift each example by its own."""

    optional = ("weight", "bias")
    vectors = ("weight", "bias")

    def rescale(self, input: Tensor, normalised: Tensor, channel_dim: int | None) -> Tensor:
        """`channel_dim` of the Parameters, or None where they have the shape of the last dimensions."""
        layer: Any = self
        batch_dim = self.plan.batch_dim
        y = normalised.movedim(batch_dim, 0)
        noise = self.perturbations(y, self.compute_dtype(input, layer.weight))
        y = y * self._broadcast(noise.vector("weight"), y, channel_dim)
        if getattr(layer, "bias", None) is not None:
            y = y + self._broadcast(noise.vector("bias"), y, channel_dim)
        return y.movedim(0, batch_dim)

    @staticmethod
    def _broadcast(vector: Tensor, y: Tensor, channel_dim: int | None) -> Tensor:
        if channel_dim is None:
            between = y.dim() - vector.dim()
            return vector.reshape(vector.shape[0], *[1] * between, *vector.shape[1:])
        return vector.reshape(*vector.shape, *[1] * (y.dim() - 2))


class LayerNorm(_Norm, nn.LayerNorm):
    torch_type = nn.LayerNorm

    def forward(self, input: Tensor) -> Tensor:
        if not self.noisy:
            return nn.LayerNorm.forward(self, input)
        return self.rescale(input, F.layer_norm(input, self.normalized_shape, None, None, self.eps), None)


class RMSNorm(_Norm, nn.RMSNorm):
    torch_type = nn.RMSNorm

    def forward(self, x: Tensor) -> Tensor:
        if not self.noisy:
            return nn.RMSNorm.forward(self, x)
        return self.rescale(x, F.rms_norm(x, self.normalized_shape, None, self.eps), None)


class GroupNorm(_Norm, nn.GroupNorm):
    torch_type = nn.GroupNorm

    def forward(self, input: Tensor) -> Tensor:
        if not self.noisy:
            return nn.GroupNorm.forward(self, input)
        return self.rescale(input, F.group_norm(input, self.num_groups, None, None, self.eps), 1)


class _BatchNorm(_Norm):
    def forward(self, input: Tensor) -> Tensor:
        if not self.noisy:
            return super().forward(input)
        layer: Any = self
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
        return self.rescale(input, F.batch_norm(input, mean, var, None, None, by_batch, factor, layer.eps), 1)


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    torch_type = nn.BatchNorm1d


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    torch_type = nn.BatchNorm2d


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    torch_type = nn.BatchNorm3d
