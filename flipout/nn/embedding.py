"""Embeddings with stochastic tables. Only the rows that are looked up get noise."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import InvalidInput
from .base import Perturbed
from .call import is_noisy, perturbations
from .inputs import not_a_tensor, rows_back, rows_first
from .layers import label_of

_REFUSED_OPTIONS = {
    "max_norm": "it rescales rows of the mean in place during forward. Normalise the table yourself.",
    "scale_grad_by_freq": "it would scale the mean's gradient but not the spread's. Leave it off.",
    "sparse": "the perturbation's gradient is dense. Use sparse=False.",
}
_REFUSED_SCHEMES = {
    "local_reparam": "not yet: a row that occurs twice in a bag would be sampled twice. Use scheme='flipout'."
}


class Embedding(Perturbed, nn.Embedding, reads_all_noise=False, optional=("weight",), refused_options=_REFUSED_OPTIONS):
    """`torch.nn.Embedding` with noise: (N, …) → (N, …, width), one table per example.

    The row `padding_idx` has no noise.

    Example:
        >>> layer = flipout.nn.Embedding(10_000, 256, distribution=flipout.Gaussian(0.1), where="weight")
    """

    def forward(self, input: Tensor) -> Tensor:
        if not is_noisy(self):
            return nn.Embedding.forward(self, input)
        index, batch_dim = rows_first(self, check_index(self, input), 0)
        noise = perturbations(self, index, self.weight.dtype)
        example = torch.arange(index.shape[0], device=index.device) // noise.draw.rows
        example = example.view(-1, *[1] * (index.dim() - 1)).expand(index.shape)
        mean = F.embedding(index, self.weight, self.padding_idx)
        y = mean + noise.scheme.row_noise(noise.matrix("weight"), index, example)
        return rows_back(y, batch_dim)


class EmbeddingBag(
    Perturbed,
    nn.EmbeddingBag,
    reads_all_noise=False,
    optional=("weight",),
    refused_options=_REFUSED_OPTIONS,
    refused_schemes=_REFUSED_SCHEMES,
    fixed_layout="one example a bag",
):
    """`torch.nn.EmbeddingBag` with noise: (N, length) → (N, width). Each bag is an example and has its own table.

    Bags may also be given by `offsets`. The row `padding_idx` has no noise.

    Example:
        >>> layer = flipout.nn.EmbeddingBag(10_000, 256, distribution=flipout.Gaussian(0.1), where="weight")
    """

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        if not is_noisy(self):
            return nn.EmbeddingBag.forward(self, input, offsets, per_sample_weights)
        index, bag, bags = self._bags(check_index(self, input), offsets)
        self._check_weights(input, per_sample_weights)
        noise = perturbations(self, bag.new_empty(bags), self.weight.dtype)
        delta = noise.scheme.row_noise(noise.matrix("weight"), index, bag // noise.draw.rows)
        value = F.embedding(index, self.weight, self.padding_idx) + delta
        is_counted = torch.ones_like(index, dtype=value.dtype)
        if self.padding_idx is not None:
            is_counted = (index != self.padding_idx).to(value.dtype)
        zeros = value.new_zeros(bags, self.embedding_dim)
        if self.mode == "max":
            return _maximum(value, bag, is_counted.bool(), zeros)
        if per_sample_weights is not None:
            value = value * per_sample_weights.flatten().unsqueeze(1)
        total = zeros.index_add(0, bag, value * is_counted.unsqueeze(1))
        if self.mode == "sum":
            return total
        return total / zeros[:, 0].index_add(0, bag, is_counted).clamp_min(1).unsqueeze(1)

    def _check_weights(self, input: Tensor, weights: Tensor | None) -> None:
        if weights is None:
            return
        if self.mode != "sum" or weights.shape != input.shape or weights.dtype != self.weight.dtype:
            raise InvalidInput(
                f"{label_of(self)}: per_sample_weights of shape {tuple(weights.shape)} and dtype {weights.dtype} under "
                f"mode='{self.mode}'; they need mode='sum', the shape of the input, {tuple(input.shape)}, and the "
                f"dtype of the table, {self.weight.dtype}."
            )

    def _bags(self, input: Tensor, offsets: Tensor | None) -> tuple[Tensor, Tensor, int]:
        """Return the flat indices, the bag of each, and the number of bags."""
        if input.dim() == 2:
            if offsets is not None:
                raise InvalidInput(
                    f"{label_of(self)}: offsets given with a 2-D input; each row of such an input is a bag already."
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
        """Refuse wrong offsets. As in torch, they are checked only on a CPU, where reading them costs nothing."""
        if offsets.device.type != "cpu" or torch.compiler.is_compiling():
            return
        starts: list[int] = offsets.tolist()
        bounds = starts if self.include_last_offset else [*starts, length]
        if bounds[:1] != [0] or bounds[-1] != length or bounds != sorted(bounds):
            raise InvalidInput(
                f"{label_of(self)}: offsets from {starts[:2]} to {starts[-2:]} of {length} indices; expected offsets "
                f"that start at 0, never fall, and end {'at' if self.include_last_offset else 'within'} the number of "
                "indices. For bags of known lengths: lengths.cumsum(0) - lengths."
            )


def check_index(layer: Perturbed, input: Tensor) -> Tensor:
    """Return the indices in int64, which the counters of the noise need."""
    if not isinstance(input, Tensor):
        raise not_a_tensor(layer, input)
    if input.dtype not in (torch.int64, torch.int32):
        raise InvalidInput(f"{label_of(layer)}: indices of dtype {input.dtype}; expected int64 or int32: x.long().")
    return input.long()


def _maximum(value: Tensor, bag: Tensor, is_counted: Tensor, zeros: Tensor) -> Tensor:
    """Return the maximum of each bag, 0 for an empty one. As in torch, the first of equal values gets the gradient."""
    index, known = bag.unsqueeze(1).expand_as(value), value.detach().masked_fill(~is_counted.unsqueeze(1), -torch.inf)
    peak = torch.full_like(zeros, -torch.inf).scatter_reduce(0, index, known, "amax")
    position = torch.arange(len(value), device=value.device).unsqueeze(1)
    nowhere = len(value)
    place = torch.where(is_counted.unsqueeze(1) & (known == peak[bag]), position, nowhere)
    first = torch.full_like(zeros, nowhere, dtype=torch.int64).scatter_reduce(0, index, place, "amin")
    return torch.cat((value, value.new_zeros(1, value.shape[1]))).gather(0, first)
