"""Gradients that come in batches: backward passes that vmap cannot see through are run for one of them at a time."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor, is_legacy_batchedtensor

Backward = Callable[..., tuple[Tensor | None, ...]]
_LEVELS = 64  # of torch's older vmap, nested in each other


def one_at_a_time(backward: Backward) -> Backward:
    """Let the backward pass of an autograd Function take batched gradients.

    `torch.autograd.grad(is_grads_batched=True)` and `torch.autograd.functional.jacobian(vectorize=True)` use torch's
    older vmap, whose tensors know few operations; `torch.func.vmap` over `torch.autograd.grad` uses the newer one.
    Kernels, results written in place and sign bits serve neither.
    """

    @wraps(backward)
    def wrapper(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        tensors = [grad for grad in grads if isinstance(grad, Tensor)]
        if any(map(is_legacy_batchedtensor, tensors)):
            return _unwrapped(partial(wrapper, ctx), grads)
        if any(map(is_batchedtensor, tensors)):
            return _Each.apply(partial(wrapper, ctx), *grads)  # pyright: ignore[reportReturnType]
        return backward(ctx, *grads)

    return wrapper


def _unwrapped(backward: Backward, grads: tuple[Any, ...]) -> tuple[Tensor | None, ...]:
    """The innermost level of the older vmap taken off, and put back on what is made."""
    level = max(_level(grad) for grad in grads)
    dims = [0 if _level(grad) == level else None for grad in grads]
    given = [grad if dim is None else _without(grad, level) for grad, dim in zip(grads, dims, strict=True)]
    made = _for_each(backward, given, dims, next(len(g) for g, dim in zip(given, dims, strict=True) if dim == 0))
    return tuple(None if part is None else torch._add_batch_dim(part, 0, level) for part in made)


def _level(grad: Any) -> int:
    """The innermost level at which it is batched; 0 for none."""
    if not isinstance(grad, Tensor) or not is_legacy_batchedtensor(grad):
        return 0
    return next(level for level in range(_LEVELS, 0, -1) if len(_without(grad, level)))


def _without(grad: Tensor, level: int) -> Tensor:
    """The batch of that level as dimension 0; of length 0 where there is none."""
    return torch._remove_batch_dim(grad, level, 0, 0)


def _for_each(backward: Backward, grads: list[Any], dims: list[int | None], count: int) -> tuple[Tensor | None, ...]:
    def one(i: int) -> tuple[Tensor | None, ...]:
        return backward(*(g if dim is None else g.select(dim, i) for g, dim in zip(grads, dims, strict=True)))

    parts = zip(*map(one, range(count)), strict=True)
    return tuple(None if part[0] is None else torch.stack(part) for part in parts)  # pyright: ignore[reportArgumentType]


class _Each(torch.autograd.Function):
    """A backward pass as a function of its gradients, with a rule for `torch.func.vmap`."""

    @staticmethod
    def forward(backward: Backward, *grads: Any) -> tuple[Tensor | None, ...]:
        return backward(*grads)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        backward, *grads = inputs
        made = _for_each(backward, grads, list(in_dims[1:]), info.batch_size)
        return made, tuple(None if part is None else 0 for part in made)
