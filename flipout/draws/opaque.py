"""Signs as one node of a compiled graph.

torch.compile would trace their bit arithmetic, some 25 operations for each dimension of each Parameter. As one custom
op they cost the compiler nothing, and at run time the kernel or numpy makes them, as in an eager pass.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def traces_alone() -> bool:
    """Return True inside torch.compile, but outside of torch.func's transforms, which need to see through."""
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
    """Return (count, features) of ±1 for each dimension of Parameter `key`, for the examples `first` onward."""
    from .signs import signs

    made = next(signs(seed, key, list(zip(dims, features, strict=True)), first, count, dtype))
    return [part.contiguous() for part in made]


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
