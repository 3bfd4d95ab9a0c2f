"""The product of flipout, and the ways to compute it: in pieces of rows, by formed weights, by kernels."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .._perturbation import Signs
from ..backend import chosen
from ..draws.draw import runs
from ..ops.base import Flipped, Op, apply_once, flip, flipped, put_flipped

_CACHED = 2**20  # numbers that stay in a CPU's cache
Needs = tuple[bool, bool, bool, bool]  # whether x, W̄, the bias and ΔŴ need a gradient
ProductGradients = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]  # of x, W̄, the bias and ΔŴ
Kernels = tuple[Callable[..., Tensor], Callable[..., Tensor], Callable[..., tuple[Tensor, Tensor]]]


class _Scratch(threading.local):
    """Memory for formed weights, at most 2¹⁸ numbers, which each thread keeps.

    Allocated anew on top of the activations, it made glibc hand all of them back to the system after each pass:
    1,700 page faults and 2 ms in a step of a small evolution strategy.
    """

    def __init__(self) -> None:
        self.numbers = torch.empty(0)

    def of(self, mean: Tensor, count: int) -> Tensor:
        """Return (count, *mean.shape) uninitialised numbers, valid until the next call."""
        size, shape = count * mean.numel(), (count, *mean.shape)
        if size > _CACHED // 4 or type(mean) not in (Tensor, nn.Parameter):  # such as a FakeTensor
            return mean.new_empty(shape)
        if self.numbers.dtype != mean.dtype or self.numbers.numel() < size:
            with torch.inference_mode(False):
                self.numbers = torch.empty(size, dtype=mean.dtype)
        return self.numbers[:size].view(shape)


_scratch = _Scratch()


@dataclass(frozen=True)
class Spec:
    """The op, the op for ΔŴ (batched if there are several bases), and the signs."""

    op: Op
    delta_op: Op
    signs: Signs

    @property
    def dims(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(dimension, features) of the signs r and s."""
        return (self.op.r_dim, self.op.out_features), (self.op.s_dim, self.op.in_features)

    def forward(self, x: Tensor, mean: Tensor, bias: Tensor | None, delta: Tensor, seed: Tensor) -> Tensor:
        """Return the product by its definition."""
        r, s = self.signs.over(self.dims, seed, x.dtype)
        return flipped(x, self.op, self.delta_op, mean, delta, r, s, bias)

    def flipped(self, mean: Tensor, bias: Tensor | None, delta: Tensor, seed: Tensor, dtype: torch.dtype) -> Flipped:
        """Return the product as a function of x."""
        r, s = self.signs.over(self.dims, seed, dtype)
        return Flipped(self.op, self.delta_op, mean, delta, r, s, bias)

    def forms(self, x: Tensor) -> bool:
        """Return True if so many rows share a weight that forming the weights costs less than a second product.

        Not in half precision, where adding ΔŴ to W̄ would round ΔŴ away.
        """
        min_rows, count = self.op.formed_from, self.signs.count
        if min_rows is None or not x.numel() or x.device.type != "cpu" or x.itemsize < 4:
            return False
        return x.numel() >= min_rows * count * self.op.in_features and x[0].is_contiguous()

    def formed(self, x: Tensor, mean: Tensor, bias: Tensor | None, delta: Tensor, seed: Tensor) -> Tensor:
        """Return the product as batched(x, W̄ + ΔŴ ∘ r sᵀ), with the weights of a few examples at a time in cache.

        The bias is (out,), or (examples, out) if each example has its own.
        """
        count, deltas = self.signs.count, delta.view(-1, 1, *mean.shape)
        group, rows = count // len(deltas), x.shape[0] // count
        examples = max(_CACHED // 4 // max(mean.numel(), 1), 1)
        r, s = self.signs.over(self.dims, seed, x.dtype)
        r, s = r.unsqueeze(-1), s.unsqueeze(-2)
        y = x.new_empty(*x.shape[:-1], self.op.out_features)
        buffer = _scratch.of(mean, min(examples, count))
        for first, length in runs(0, count, examples, group):
            run, bases = slice(first, first + length), max(length // group, 1)
            weight, by_base = buffer[:length], (bases, length // bases)
            torch.mul(deltas[first // group :][:bases], s[run].unflatten(0, by_base), out=weight.unflatten(0, by_base))
            torch.addcmul(mean, weight, r[run], out=weight)
            piece = slice(first * rows, (first + length) * rows)
            biases = bias[run] if bias is not None and bias.dim() == 2 else None
            self.op.batched(length).put(y[piece], x[piece], weight, biases)
        return y if bias is None or bias.dim() == 2 else y.add_(bias)

    def by_pieces(self, x: Tensor, mean: Tensor, bias: Tensor | None, delta: Tensor, seed: Tensor) -> Tensor:
        """Return the product by its definition, a piece of the rows at a time."""
        op, y = self.op, torch.empty(0)
        for rows, r, s in self.pieces(x, seed):
            p = self.delta_op.apply(flip(x[rows], s, op.in_dim), delta)
            mean_product = apply_once(op, x[rows], mean, bias)
            if rows.start == 0:
                # The output has the memory layout of its first piece, and its memory too if that is the only piece.
                like = p if mean_product.stride(0) == 0 else mean_product
                is_only_piece = like is mean_product and len(like) == len(x)
                y = like if is_only_piece else like.new_empty_strided((len(x), *like.shape[1:]), like.stride())
            put_flipped(y[rows], mean_product, p, r, op.out_dim)
        return y

    def pieces(self, x: Tensor, seed: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield slices of the rows with their r and s. On a CPU the flipped rows of a slice stay in its cache."""
        count = self.signs.count
        rows = x.shape[0] // count if count else 1
        examples = count
        if x.device.type == "cpu" and self.delta_op is self.op:
            examples = max(_CACHED // max(rows * x[:1].numel(), 1), 1)
        masks = not torch.is_grad_enabled()  # a double backward differentiates the flips, which masks do not allow
        for i, (r, s) in enumerate(self.signs.runs(self.dims, seed, x.dtype, examples, masks)):
            yield slice(i * examples * rows, (i + 1) * examples * rows), r, s

    def kernels(self, *rows: tuple[Tensor, int]) -> Kernels | None:
        """Return kernels that flip, that flip and add, and that flip and sum, with signs drawn where they are used.

        Args:
            *rows: Tensors that are flipped, each with its dimension.

        Returns:
            None if a tensor has no kernel, or if autograd is on: a double backward would differentiate them.
        """
        if torch.is_grad_enabled():
            return None
        found = [chosen("flips", x, self.signs, dim, required=False) for x, dim in rows]
        return None if None in found else found[0]

    def gradients(
        self, grad: Tensor, x: Tensor, mean: Tensor, delta: Tensor, seed: Tensor, needs: Needs
    ) -> ProductGradients:
        """Return the gradients of x, W̄, the bias and ΔŴ, each None if not needed."""
        op, delta_op, (need_x, need_mean, need_bias, need_delta) = self.op, self.delta_op, needs
        needs_flips = need_x or need_delta
        kernels = self.kernels((x, op.in_dim), (grad, op.out_dim)) if needs_flips else None
        if kernels is None:
            dbias = self.bias_gradient(grad) if need_bias else None
            if not needs_flips:
                return None, op.gradients(grad, x, mean, (False, need_mean))[1], dbias, None
            needs_pieces = (need_x, need_mean, need_delta)
            dx, dmean, ddelta = self._gradients_by_pieces(grad, x, mean, delta, seed, needs_pieces)
            return dx, dmean, dbias, ddelta
        flip_drawn, add_flipped, flip_and_sum = kernels
        r_signs = self.signs, seed, op.r_dim, op.out_dim
        flipped_grad, dbias = flip_and_sum(grad, *r_signs) if need_bias else (flip_drawn(grad, *r_signs), None)
        fused = chosen("fused_linear", grad, self.signs, delta_op, required=False) if need_x else None
        needs_separate_dx = need_x and fused is None
        dx, dmean = op.gradients(grad, x, mean, (needs_separate_dx, need_mean))
        flipped_x = flip_drawn(x, self.signs, seed, op.s_dim, op.in_dim) if need_delta else x
        dp, ddelta = delta_op.gradients(flipped_grad, flipped_x, delta, (needs_separate_dx, need_delta))
        if fused is not None:
            dx = fused(grad, flipped_grad, mean.T, delta.T, None, self.signs, seed, op.s_dim)
        elif dx is not None:
            dx = add_flipped(dx, dp, self.signs, seed, op.s_dim, op.in_dim)
        return dx, dmean, dbias, ddelta

    def _gradients_by_pieces(
        self, grad: Tensor, x: Tensor, mean: Tensor, delta: Tensor, seed: Tensor, needs: tuple[bool, bool, bool]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of x, W̄ and ΔŴ, a piece of the rows at a time."""
        op, (need_x, need_mean, need_delta) = self.op, needs
        dx = torch.empty_like(x) if need_x else None
        dmean = ddelta = None
        for rows, r, s in self.pieces(x, seed):
            piece_dx, piece_dmean = op.gradients(grad[rows], x[rows], mean, (need_x, need_mean))
            flipped_grad, flipped_x = flip(grad[rows], r, op.out_dim), flip(x[rows], s, op.in_dim)
            dp, piece_ddelta = self.delta_op.gradients(flipped_grad, flipped_x, delta, (need_x, need_delta))
            if dx is not None and piece_dx is not None and dp is not None:
                put_flipped(dx[rows], piece_dx, dp, s, op.in_dim)
            dmean, ddelta = _sum(dmean, piece_dmean), _sum(ddelta, piece_ddelta)
        dmean, ddelta = (None if total is None else total.to(x.dtype) for total in (dmean, ddelta))
        return dx, dmean, ddelta

    def bias_gradient(self, grad: Tensor) -> Tensor:
        """Return the gradient of the bias, by a kernel if one fits."""
        kernel = None if torch.is_grad_enabled() else chosen("sum_rows", grad, self.op.out_dim, required=False)
        return self.op.bias_gradient(grad) if kernel is None else kernel(grad, self.op.out_dim)


def _sum(total: Tensor | None, piece: Tensor | None) -> Tensor | None:
    """Add a piece to a running sum, which is kept at least in single precision."""
    if total is None or piece is None:
        return piece
    return total.to(torch.promote_types(total.dtype, torch.float32)) + piece
