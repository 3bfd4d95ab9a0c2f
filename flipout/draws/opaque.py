"""Signs as one node of a compiled graph.

torch.compile would trace their bit arithmetic, about 25 operations for each dimension of each Parameter. A custom op
costs the compiler one node, and at run time the kernel or numpy computes the signs, as in an eager pass.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def is_only_compiling() -> bool:
    """Return True inside torch.compile, but outside torch.func's transforms, which must see the arithmetic itself."""
    return (
        torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and torch.autograd.forward_ad._current_level < 0
    )


@torch.library.custom_op("flipout::drawn_signs", mutates_args=())
def drawn_signs(
    seed: Tensor,
    key: int,
    dims: Sequence[int],
    features: Sequence[int],
    first: int,
    count: int,
    dtype: torch.dtype,
) -> list[Tensor]:
    """Return ±1 of shape (count, features) for each dimension of Parameter `key`, for the examples `first` onward."""
    from .signs import sign_batches

    over_dims = next(sign_batches(seed, key, list(zip(dims, features, strict=True)), first, count, dtype))
    return [drawn.contiguous() for drawn in over_dims]


@drawn_signs.register_fake
def _(
    seed: Tensor,
    key: int,
    dims: Sequence[int],
    features: Sequence[int],
    first: int,
    count: int,
    dtype: torch.dtype,
) -> list[Tensor]:
    return [seed.new_empty((count, size), dtype=dtype) for size in features]


@torch.library.custom_op("flipout::packed_signs", mutates_args=())
def packed_signs(
    seed: Tensor, key: int, dims: Sequence[int], features: Sequence[int], first: int, count: int
) -> Tensor:
    """Return the signs over each dimension of Parameter `key` as bits, (count, words of 32), one dimension after the
    other. Each dimension fills an even number of words.
    """
    from .signs import packed_words

    return packed_words(seed, key, list(zip(dims, features, strict=True)), first, count)


@packed_signs.register_fake
def _(seed: Tensor, key: int, dims: Sequence[int], features: Sequence[int], first: int, count: int) -> Tensor:
    return seed.new_empty((count, sum(-(-size // 64) * 2 for size in features)), dtype=torch.int32)
