"""Let hand-written backward passes accept batched gradients.

vmap cannot see through kernels, in-place results and sign bits. A backward pass that uses them runs once for each
gradient of the batch.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor, is_legacy_batchedtensor

Backward = Callable[..., tuple[Tensor | None, ...]]
_MAX_LEVELS = 64  # torch's legacy vmap nests no deeper


def one_at_a_time(backward: Backward) -> Backward:
    """Decorate the backward pass of an autograd Function so that it accepts batched gradients.

    Batched gradients come from two versions of vmap. `torch.autograd.grad(is_grads_batched=True)` and
    `torch.autograd.functional.jacobian(vectorize=True)` use the legacy one, whose tensors support few operations.
    `torch.func.vmap` over `torch.autograd.grad` uses the current one.
    """

    @wraps(backward)
    def wrapper(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        tensors = [grad for grad in grads if isinstance(grad, Tensor)]
        if any(map(is_legacy_batchedtensor, tensors)):
            return _unwrap_innermost(partial(wrapper, ctx), grads)
        if any(map(is_batchedtensor, tensors)):
            return _LoopedBackward.apply(partial(wrapper, ctx), *grads)  # pyright: ignore[reportReturnType]
        return backward(ctx, *grads)

    return wrapper


def _unwrap_innermost(backward: Backward, grads: tuple[Any, ...]) -> tuple[Tensor | None, ...]:
    """Take off the innermost level of the legacy vmap, loop over its batch, and put the level back on the results."""
    level = max(_level(grad) for grad in grads)
    dims = [0 if _level(grad) == level else None for grad in grads]
    unwrapped = [grad if dim is None else _remove_level(grad, level) for grad, dim in zip(grads, dims, strict=True)]
    count = next(len(grad) for grad, dim in zip(unwrapped, dims, strict=True) if dim == 0)
    results = _loop(backward, unwrapped, dims, count)
    return tuple(None if result is None else torch._add_batch_dim(result, 0, level) for result in results)


def _level(grad: Any) -> int:
    """Return the innermost level at which a gradient is batched, or 0."""
    if not isinstance(grad, Tensor) or not is_legacy_batchedtensor(grad):
        return 0
    return next(level for level in range(_MAX_LEVELS, 0, -1) if len(_remove_level(grad, level)))


def _remove_level(grad: Tensor, level: int) -> Tensor:
    """Return the gradient with the batch of that level in dimension 0, of length 0 if there is no such batch."""
    return torch._remove_batch_dim(grad, level, 0, 0)


def _loop(backward: Backward, grads: list[Any], dims: list[int | None], count: int) -> tuple[Tensor | None, ...]:
    """Run the backward pass for each gradient of the batch and stack the results."""

    def run(i: int) -> tuple[Tensor | None, ...]:
        return backward(*(g if dim is None else g.select(dim, i) for g, dim in zip(grads, dims, strict=True)))

    results = zip(*map(run, range(count)), strict=True)
    return tuple(None if result[0] is None else torch.stack(result) for result in results)  # pyright: ignore[reportArgumentType]


class _LoopedBackward(torch.autograd.Function):
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
        results = _loop(backward, grads, list(in_dims[1:]), info.batch_size)
        return results, tuple(None if result is None else 0 for result in results)
