"""Embeddings with stochastic tables: only the rows that are met are perturbed."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InvalidInput
from .base import Perturbed

_WHY = {
    "max_norm": "it rescales rows of the mean in place during forward. Normalise the table yourself.",
    "scale_grad_by_freq": "it would scale the mean's gradient but not the spread's. Leave it off.",
    "sparse": "the perturbation's gradient is dense. Use sparse=False.",
}


class Embedding(Perturbed, nn.Embedding):
    """`torch.nn.Embedding`: example n looks rows up in W̄ + ΔŴ ∘ r_n s_nᵀ. The `padding_idx` row is never perturbed."""

    torch_type = nn.Embedding
    optional = ("weight",)
    refused = _WHY

    def forward(self, input: Tensor) -> Tensor:
        if not self.noisy:
            return nn.Embedding.forward(self, input)
        check_index(self, input)
        batched = input.dim() > self.plan.batch_dim
        row = input.movedim(self.plan.batch_dim, 0) if batched else input.unsqueeze(0)
        noise = self.perturbations(row, self.weight.dtype)
        example = torch.arange(row.shape[0], device=row.device) // noise.draw.rows
        example = example.view(-1, *[1] * (row.dim() - 1)).expand(row.shape)
        mean = F.embedding(row, self.weight, self.padding_idx)
        y = mean + self.plan.scheme.row_noise(noise["weight"], row, example)
        return y.movedim(0, self.plan.batch_dim) if batched else y.squeeze(0)


class EmbeddingBag(Perturbed, nn.EmbeddingBag):
    """`torch.nn.EmbeddingBag`: a bag is an example."""

    torch_type = nn.EmbeddingBag
    optional = ("weight",)
    refused = _WHY
    refused_schemes = {  # noqa: RUF012
        "local_reparam": "not yet: a row that occurs twice in a bag would be sampled twice. Use scheme='flipout'."
    }

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        if not self.noisy:
            return nn.EmbeddingBag.forward(self, input, offsets, per_sample_weights)
        check_index(self, input)
        row, bag, bags = self._bags(input, offsets)
        if per_sample_weights is not None and (self.mode != "sum" or per_sample_weights.shape != input.shape):
            raise InvalidInput(
                f"{self.label}: per_sample_weights of shape {tuple(per_sample_weights.shape)} under "
                f"mode='{self.mode}'; they need mode='sum' and the shape of the input, {tuple(input.shape)}."
            )
        noise = self.perturbations(bag.new_empty(bags), self.weight.dtype)
        delta = self.plan.scheme.row_noise(noise["weight"], row, bag // noise.draw.rows)
        value = F.embedding(row, self.weight, self.padding_idx) + delta
        counted = torch.ones_like(row, dtype=value.dtype)
        if self.padding_idx is not None:
            counted = (row != self.padding_idx).to(value.dtype)
        zeros = value.new_zeros(bags, self.embedding_dim)
        if self.mode == "max":
            value = value.masked_fill(counted.unsqueeze(1) == 0, -torch.inf)
            index = bag.unsqueeze(1).expand_as(value)
            peak = torch.full_like(zeros, -torch.inf).scatter_reduce(0, index, value, "amax")
            return torch.where(peak == -torch.inf, 0, peak)
        if per_sample_weights is not None:
            value = value * per_sample_weights.flatten().unsqueeze(1)
        total = zeros.index_add(0, bag, value * counted.unsqueeze(1))
        if self.mode == "sum":
            return total
        return total / zeros[:, 0].index_add(0, bag, counted).clamp_min(1).unsqueeze(1)

    def _bags(self, input: Tensor, offsets: Tensor | None) -> tuple[Tensor, Tensor, int]:
        """The flat indices, the bag of each, and the number of bags."""
        if input.dim() == 2:
            if offsets is not None:
                raise InvalidInput(f"{self.label}: offsets given with a 2-D input; each of its rows is a bag already.")
            bags, width = input.shape
            bag = torch.arange(bags, device=input.device).repeat_interleave(width)
            return input.flatten(), bag, bags
        if input.dim() != 1 or offsets is None or offsets.dim() != 1:
            raise InvalidInput(
                f"{self.label}: input of shape {tuple(input.shape)} and offsets of shape "
                f"{None if offsets is None else tuple(offsets.shape)}; expected (bags, width), "
                "or 1-D indices with 1-D offsets."
            )
        position = torch.arange(input.shape[0], device=input.device)
        bag = torch.searchsorted(offsets.to(position.dtype), position, right=True) - 1
        return input, bag, offsets.shape[0] - int(self.include_last_offset)


def check_index(layer: Perturbed, input: Tensor) -> None:
    if input.dtype not in (torch.int64, torch.int32):
        raise InvalidInput(f"{layer.label}: indices of dtype {input.dtype}; expected int64 or int32: x.long().")
