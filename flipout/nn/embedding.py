"""Embeddings with stochastic tables: only the rows that are met are perturbed."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InvalidInput
from .base import Perturbed
from .call import is_noisy, perturbations
from .inputs import not_a_tensor, rows_back, rows_first
from .layers import label_of

_WHY = {
    "max_norm": "it rescales rows of the mean in place during forward. Normalise the table yourself.",
    "scale_grad_by_freq": "it would scale the mean's gradient but not the spread's. Leave it off.",
    "sparse": "the perturbation's gradient is dense. Use sparse=False.",
}
_TWICE = {"local_reparam": "not yet: a row that occurs twice in a bag would be sampled twice. Use scheme='flipout'."}


class Embedding(Perturbed, nn.Embedding, reads_all_noise=False, optional=("weight",), refused_options=_WHY):
    """`torch.nn.Embedding`, (N, …) → (N, …, width): example n looks up rows of its W_n. `padding_idx` has no noise."""

    def forward(self, input: Tensor) -> Tensor:
        if not is_noisy(self):
            return nn.Embedding.forward(self, input)
        row = check_index(self, input)
        row, batch_dim = rows_first(self, row, 0)
        noise = perturbations(self, row, self.weight.dtype)
        example = torch.arange(row.shape[0], device=row.device) // noise.draw.rows
        example = example.view(-1, *[1] * (row.dim() - 1)).expand(row.shape)
        mean = F.embedding(row, self.weight, self.padding_idx)
        y = mean + noise.scheme.row_noise(noise.matrix("weight"), row, example)
        return rows_back(y, batch_dim)


class EmbeddingBag(
    Perturbed,
    nn.EmbeddingBag,
    reads_all_noise=False,
    optional=("weight",),
    refused_options=_WHY,
    refused_schemes=_TWICE,
    fixed_layout="one example a bag",
):
    """`torch.nn.EmbeddingBag`, (N, length) → (N, width): a bag is an example, also one given by `offsets`."""

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        if not is_noisy(self):
            return nn.EmbeddingBag.forward(self, input, offsets, per_sample_weights)
        row, bag, bags = self._bags(check_index(self, input), offsets)
        self._check_weights(input, per_sample_weights)
        noise = perturbations(self, bag.new_empty(bags), self.weight.dtype)
        delta = noise.scheme.row_noise(noise.matrix("weight"), row, bag // noise.draw.rows)
        value = F.embedding(row, self.weight, self.padding_idx) + delta
        counted = torch.ones_like(row, dtype=value.dtype)
        if self.padding_idx is not None:
            counted = (row != self.padding_idx).to(value.dtype)
        zeros = value.new_zeros(bags, self.embedding_dim)
        if self.mode == "max":
            return _maximum(value, bag, counted.bool(), zeros)
        if per_sample_weights is not None:
            value = value * per_sample_weights.flatten().unsqueeze(1)
        total = zeros.index_add(0, bag, value * counted.unsqueeze(1))
        if self.mode == "sum":
            return total
        return total / zeros[:, 0].index_add(0, bag, counted).clamp_min(1).unsqueeze(1)

    def _check_weights(self, input: Tensor, given: Tensor | None) -> None:
        if given is None:
            return
        if self.mode != "sum" or given.shape != input.shape or given.dtype != self.weight.dtype:
            raise InvalidInput(
                f"{label_of(self)}: per_sample_weights of shape {tuple(given.shape)} and dtype {given.dtype} under "
                f"mode='{self.mode}'; they need mode='sum', the shape of the input, {tuple(input.shape)}, and the "
                f"dtype of the table, {self.weight.dtype}."
            )

    def _bags(self, input: Tensor, offsets: Tensor | None) -> tuple[Tensor, Tensor, int]:
        """The flat indices, the bag of each, and the number of bags."""
        if input.dim() == 2:
            if offsets is not None:
                raise InvalidInput(
                    f"{label_of(self)}: offsets given with a 2-D input; each of its rows is a bag already."
                )
            bags, width = input.shape
            bag = torch.arange(bags, device=input.device).repeat_interleave(width)
            return input.flatten(), bag, bags
        if input.dim() != 1 or offsets is None or offsets.dim() != 1:
            raise InvalidInput(
                f"{label_of(self)}: input of shape {tuple(input.shape)} and offsets of shape "
                f"{None if offsets is None else tuple(offsets.shape)}; expected (bags, width), "
                "or 1-D indices with 1-D offsets."
            )
        self._check_offsets(offsets, input.shape[0])
        position = torch.arange(input.shape[0], device=input.device)
        bag = torch.searchsorted(offsets.to(position.dtype), position, right=True) - 1
        return input, bag, offsets.shape[0] - int(self.include_last_offset)

    def _check_offsets(self, offsets: Tensor, length: int) -> None:
        """Only where reading them costs nothing, as torch does."""
        if offsets.device.type != "cpu" or torch.compiler.is_compiling():
            return
        given: list[int] = offsets.tolist()
        bounds = given if self.include_last_offset else [*given, length]
        if bounds[:1] != [0] or bounds[-1] != length or bounds != sorted(bounds):
            raise InvalidInput(
                f"{label_of(self)}: offsets from {given[:2]} to {given[-2:]} of {length} indices; expected to start "
                f"at 0, never to fall, and to end {'at' if self.include_last_offset else 'within'} the number of "
                "indices. For bags of given lengths: lengths.cumsum(0) - lengths."
            )


def check_index(layer: Perturbed, input: Tensor) -> Tensor:
    """The indices in int64, as the counters of noise need them."""
    if not isinstance(input, Tensor):
        raise not_a_tensor(layer, input)
    if input.dtype not in (torch.int64, torch.int32):
        raise InvalidInput(f"{label_of(layer)}: indices of dtype {input.dtype}; expected int64 or int32: x.long().")
    return input.long()


def _maximum(value: Tensor, bag: Tensor, counted: Tensor, zeros: Tensor) -> Tensor:
    """Each bag's maximum, 0 for an empty one; of equal values the first has the gradient, as in torch."""
    index, known = bag.unsqueeze(1).expand_as(value), value.detach().masked_fill(~counted.unsqueeze(1), -torch.inf)
    peak = torch.full_like(zeros, -torch.inf).scatter_reduce(0, index, known, "amax")
    position = torch.arange(len(value), device=value.device).unsqueeze(1)
    nowhere = len(value)
    place = torch.where(counted.unsqueeze(1) & (known == peak[bag]), position, nowhere)
    first = torch.full_like(zeros, nowhere, dtype=torch.int64).scatter_reduce(0, index, place, "amin")
    return torch.cat((value, value.new_zeros(1, value.shape[1]))).gather(0, first)
