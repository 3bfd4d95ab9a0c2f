"""Multi-head attention with stochastic projections: four linear ops around torch's own attention."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._perturbation import Part
from ..errors import InvalidInput
from ..ops.linear import Linear
from .base import Perturbed
from .call import is_noisy, perturbations
from .companions import reset_companions
from .inputs import compute_dtype, not_a_tensor, rows_back
from .layers import label_of
from .parameters import Perturbations
from .row_count import single_example


class MultiheadAttention(
    Perturbed,
    nn.MultiheadAttention,
    default=("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"),
    optional=("in_proj_bias", "out_proj.bias"),
    vectors=("in_proj_bias", "out_proj.bias"),
    fixed_layout="set by batch_first",
):
    """`torch.nn.MultiheadAttention` with noise on its projections.

    Inputs are (time, N, width), or (N, time, width) if `batch_first`. All tokens of an example see one weight.

    Example:
        >>> layer = flipout.nn.MultiheadAttention(512, 8, batch_first=True, distribution=flipout.MeanField())
        >>> y, _ = layer(x, x, x)
    """

    def _reset_parameters(self) -> None:
        super()._reset_parameters()
        if "flipout" in self.__dict__:  # torch's own __init__ calls it before there is any noise
            reset_companions(self)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if not is_noisy(self):
            return nn.MultiheadAttention.forward(
                self, query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        if is_causal and attn_mask is None:
            raise InvalidInput(
                f"{label_of(self)}: is_causal=True is only a hint about attn_mask; pass the mask itself too."
            )
        self._check(query, key, value)
        has_batch, batch_dim = query.dim() == 3, 0 if self.batch_first else 1
        q = query.movedim(batch_dim, 0) if has_batch else single_example(self, query, mask=attn_mask)
        k = q if key is query else (key.movedim(batch_dim, 0) if has_batch else key.unsqueeze(0))
        v = k if value is key else (value.movedim(batch_dim, 0) if has_batch else value.unsqueeze(0))
        if not has_batch and key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)

        weight = self.in_proj_weight if self._qkv_same_embed_dim else self.q_proj_weight
        noise = perturbations(self, q, compute_dtype(self, query, weight))
        q, k, v = self._project(noise, q, k, v)
        mask = self._mask(attn_mask, key_padding_mask, q, k)
        k, v, mask = self._extend(k, v, mask)
        q, k, v = (t.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2) for t in (q, k, v))
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
            probabilities = (scores if mask is None else scores + mask).softmax(-1)
            weights = F.dropout(probabilities, dropout)
            y = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, dropout)
        y = self._output(noise, y.transpose(1, 2).flatten(2))
        if not has_batch:
            return y.squeeze(0), None if weights is None else weights.squeeze(0)
        return rows_back(y, batch_dim), weights

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        inputs = (("query", query, self.embed_dim), ("key", key, self.kdim), ("value", value, self.vdim))
        is_self_attention = key is query and value is query and self._qkv_same_embed_dim
        for name, t, width in inputs[:1] if is_self_attention else inputs:
            if not isinstance(t, Tensor):
                raise not_a_tensor(self, t, name)
            if t.dim() not in (2, 3) or t.dim() != query.dim() or t.shape[-1] != width:
                raise InvalidInput(
                    f"{label_of(self)}: {name} of shape {tuple(t.shape)}; expected "
                    f"{'(N, L, ' if self.batch_first else '(L, N, '}{width}) or (L, {width}), "
                    "with the same number of dimensions as the query."
                )
            compute_dtype(self, t, self.out_proj.weight)
        batch = slice(0) if query.dim() == 2 else slice(0, 1) if self.batch_first else slice(1, 2)
        if key.shape[:-1] != value.shape[:-1] or key.shape[batch] != query.shape[batch]:
            raise InvalidInput(
                f"{label_of(self)}: query, key and value of shapes {tuple(query.shape)}, {tuple(key.shape)} and "
                f"{tuple(value.shape)}; expected the same batch size, in dimension {0 if self.batch_first else 1} as "
                f"batch_first={self.batch_first} says, and keys and values of the same length. For "
                f"{'(L, N, …)' if self.batch_first else '(N, L, …)'} make it with batch_first={not self.batch_first}."
            )

    def _project(self, noise: Perturbations, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        width, bias = self.embed_dim, self.in_proj_bias
        if self._qkv_same_embed_dim and q is k and k is v:
            return noise.affine(Linear(width, 3 * width), q, "in_proj_weight", "in_proj_bias").chunk(3, -1)
        uses: list[tuple[str, Part | None]] = [(f"{name}_proj_weight", None) for name in "qkv"]
        if self._qkv_same_embed_dim:
            uses = [("in_proj_weight", Part(i * width, width, 3 * width)) for i in range(3)]
        is_plain = bias is not None and "in_proj_bias" not in noise
        biases = bias.chunk(3) if is_plain else (None, None, None)
        projected = tuple(
            noise.product(Linear(x.shape[-1], width), x, name, plain, part)
            for x, (name, part), plain in zip((q, k, v), uses, biases, strict=True)
        )
        if bias is None or is_plain:
            return projected
        vectors = noise.vector("in_proj_bias").unsqueeze(1).chunk(3, -1)
        return tuple(x + vector for x, vector in zip(projected, vectors, strict=True))

    def _output(self, noise: Perturbations, y: Tensor) -> Tensor:
        return noise.affine(Linear(self.embed_dim, self.embed_dim), y, "out_proj.weight", "out_proj.bias")

    def _mask(self, attn_mask: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
        """Return both masks as one to be added to the scores. It broadcasts to (N, heads, L, S)."""
        rows, (length, source) = q.shape[0], (q.shape[1], k.shape[1])
        merged = None
        if attn_mask is not None:
            is_per_head = attn_mask.dim() == 3
            if attn_mask.shape != ((rows * self.num_heads, length, source) if is_per_head else (length, source)):
                raise InvalidInput(
                    f"{label_of(self)}: attn_mask of shape {tuple(attn_mask.shape)}; expected ({length}, {source}) or "
                    f"({rows * self.num_heads}, {length}, {source})."
                )
            merged = self._additive(attn_mask.unflatten(0, (rows, -1)) if is_per_head else attn_mask, q.dtype)
        if padding is not None:
            if padding.shape != (rows, source):
                raise InvalidInput(
                    f"{label_of(self)}: key_padding_mask of shape {tuple(padding.shape)}; expected ({rows}, {source})."
                )
            hidden = self._additive(padding, q.dtype).view(rows, 1, 1, source)
            merged = hidden if merged is None else merged + hidden
        return merged

    def _additive(self, mask: Tensor, dtype: torch.dtype) -> Tensor:
        if mask.dtype == torch.bool:
            return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -torch.inf)
        if not mask.is_floating_point():
            raise InvalidInput(f"{label_of(self)}: a mask of dtype {mask.dtype}; expected bool (True hides) or floats.")
        return mask.to(dtype)

    def _extend(self, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Add the keys of `add_bias_kv` and `add_zero_attn`, which no mask hides."""
        rows, extra = k.shape[0], 0
        if self.bias_k is not None and self.bias_v is not None:
            k = torch.cat((k, self.bias_k.to(k.dtype).expand(rows, -1, -1)), 1)
            v = torch.cat((v, self.bias_v.to(v.dtype).expand(rows, -1, -1)), 1)
            extra += 1
        if self.add_zero_attn:
            k, v = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1))
            extra += 1
        return k, v, mask if mask is None or not extra else F.pad(mask, (0, extra))
