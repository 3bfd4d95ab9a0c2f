"""What the product of flipout is of, and the ways to compute it: pieces, formed weights, kernels."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..backend import chosen
from ..draw import runs
from ..ops.base import Flipped, Op, apply_once, flip, flipped, put_flipped
from ..perturbation import Signs

_CACHED = 2**20  # numbers
Needs = tuple[bool, bool, bool, bool]  # of x, W̄, the bias and ΔŴ
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]
Kernels = tuple[Callable[..., Tensor], Callable[..., Tensor], Callable[..., tuple[Tensor, Tensor]]]


class _Scratch(threading.local):
    """Memory for formed weights, at most 2¹⁸ numbers, kept by each thread.

    Allocated anew on top of the activations, it made glibc hand all of them back to the system after each pass:
    1,700 page faults and 2 ms in a step of a small evolution strategy.
    """

    def __init__(self) -> None:
        self.numbers = torch.empty(0)

    def of(self, mean: Tensor, count: int) -> Tensor:
        """Return (count, *mean.shape) numbers of any value, valid until the next call."""
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
    """The op, its form for ΔŴ (batched where there are several bases), and whose signs."""

    op: Op
    lifted: Op
    signs: Signs

    @property
    def dims(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self.op.r_dim, self.op.out_features), (self.op.s_dim, self.op.in_features)

    def forward(self, x: Tensor, mean: Tensor, bias: Tensor | None, delta: Tensor, seed: Tensor) -> Tensor:
        r, s = self.signs.over(self.dims, seed, x.dtype)
        return flipped(x, self.op, self.lifted, mean, delta, r, s, bias)

    def flipped(self, mean: Tensor, bias: Tensor | None, delta: Tensor, seed: Tensor, dtype: torch.dtype) -> Flipped:
        r, s = self.signs.over(self.dims, seed, dtype)
        return Flipped(self.op, self.lifted, mean, delta, r, s, bias)

    def forms(self, x: Tensor) -> bool:
        """Whether many rows of x share a weight, so that it is formed for less than a second product. Half precision
        would round ΔŴ away beside W̄."""
        least, count = self.op.formed_from, self.signs.count
        if least is None or not x.numel() or x.device.type != "cpu" or x.itemsize < 4:
            return False
        return x.numel() >= least * count * self.op.in_features and x[0].is_contiguous()

    def formed(self, x: Tensor, mean: Tensor, bias: Tensor | None, delta: Tensor, seed: Tensor) -> Tensor:
        """The same by batched(x, W̄ + ΔŴ ∘ r sᵀ): a few examples' weights at a time, which stay in a CPU's cache.

        The bias is (out,), or (examples, out) where each example has its own.
        """
        count, deltas = self.signs.count, delta.view(-1, 1, *mean.shape)
        group, rows, some = count // len(deltas), x.shape[0] // count, max(_CACHED // 4 // max(mean.numel(), 1), 1)
        r, s = self.signs.over(self.dims, seed, x.dtype)
        r, s = r.unsqueeze(-1), s.unsqueeze(-2)
        y = x.new_empty(*x.shape[:-1], self.op.out_features)
        room = _scratch.of(mean, min(some, count))
        for first, length in runs(0, count, some, group):
            own, bases = slice(first, first + length), max(length // group, 1)
            weight, of = room[:length], (bases, length // bases)
            torch.mul(deltas[first // group :][:bases], s[own].unflatten(0, of), out=weight.unflatten(0, of))
            torch.addcmul(mean, weight, r[own], out=weight)
            piece = slice(first * rows, (first + length) * rows)
            biases = bias[own] if bias is not None and bias.dim() == 2 else None
            self.op.batched(length).put(y[piece], x[piece], weight, biases)
        return y if bias is None or bias.dim() == 2 else y.add_(bias)

    def by_pieces(self, x: Tensor, mean: Tensor, bias: Tensor | None, delta: Tensor, seed: Tensor) -> Tensor:
        """The definition, for some rows after the other."""
        op, y = self.op, torch.empty(0)
        for rows, r, s in self.pieces(x, seed):
            p = self.lifted.apply(flip(x[rows], s, op.in_dim), delta)
            some = apply_once(op, x[rows], mean, bias)
            if rows.start == 0:
                own = p if some.stride(0) == 0 else some
                whole = own is some and len(some) == len(x)
                y = some if whole else own.new_empty_strided((len(x), *own.shape[1:]), own.stride())
            put_flipped(y[rows], some, p, r, op.out_dim)
        return y

    def pieces(self, x: Tensor, seed: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Rows with their r and s: on a CPU a few examples at a time, so that what is flipped stays in its cache."""
        count = self.signs.count
        rows = x.shape[0] // count if count else 1
        some = count
        if x.device.type == "cpu" and self.lifted is self.op:
            some = max(_CACHED // max(rows * x[:1].numel(), 1), 1)
        masks = not torch.is_grad_enabled()  # bits cannot be differentiated, as a double backward would
        for i, (r, s) in enumerate(self.signs.runs(self.dims, seed, x.dtype, some, masks)):
            yield slice(i * some * rows, (i + 1) * some * rows), r, s

    def kernels(self, *rows: tuple[Tensor, int]) -> Kernels | None:
        """To flip, to add, and to flip and sum, with signs made where they are used, if they serve these tensors along
        these dimensions. They cannot be differentiated, as a double backward would."""
        if torch.is_grad_enabled():
            return None
        served = [chosen("flips", x, self.signs, dim, required=False) for x, dim in rows]
        return None if None in served else served[0]

    def gradients(self, grad: Tensor, x: Tensor, mean: Tensor, delta: Tensor, seed: Tensor, needs: Needs) -> Gradients:
        """Of x, W̄, the bias and ΔŴ, where needed."""
        op, lifted, (need_x, need_mean, need_bias, need_delta) = self.op, self.lifted, needs
        flips = need_x or need_delta
        kernels = self.kernels((x, op.in_dim), (grad, op.out_dim)) if flips else None
        if kernels is None:
            dbias = self.bias_gradient(grad) if need_bias else None
            if not flips:
                return None, op.gradients(grad, x, mean, (False, need_mean))[1], dbias, None
            some = (need_x, need_mean, need_delta)
            dx, dmean, ddelta = self._gradients_by_pieces(grad, x, mean, delta, seed, some)
            return dx, dmean, dbias, ddelta
        flip_drawn, add_flipped, flip_and_sum = kernels
        whose = self.signs, seed, op.r_dim, op.out_dim
        flipped, dbias = flip_and_sum(grad, *whose) if need_bias else (flip_drawn(grad, *whose), None)
        twice = chosen("multiply_twice", grad, self.signs, lifted, required=False) if need_x else None
        alone = need_x and twice is None
        dx, dmean = op.gradients(grad, x, mean, (alone, need_mean))
        own = flip_drawn(x, self.signs, seed, op.s_dim, op.in_dim) if need_delta else x
        dp, ddelta = lifted.gradients(flipped, own, delta, (alone, need_delta))
        if twice is not None:
            dx = twice(grad, flipped, mean.T, delta.T, None, self.signs, seed, op.s_dim)
        elif dx is not None:
            dx = add_flipped(dx, dp, self.signs, seed, op.s_dim, op.in_dim)
        return dx, dmean, dbias, ddelta

    def _gradients_by_pieces(
        self, grad: Tensor, x: Tensor, mean: Tensor, delta: Tensor, seed: Tensor, needs: tuple[bool, bool, bool]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Of x, W̄ and ΔŴ."""
        op, (need_x, need_mean, need_delta) = self.op, needs
        dx = torch.empty_like(x) if need_x else None
        dmean = ddelta = None
        for rows, r, s in self.pieces(x, seed):
            some, dm = op.gradients(grad[rows], x[rows], mean, (need_x, need_mean))
            flipped = flip(grad[rows], r, op.out_dim)
            dp, dd = self.lifted.gradients(flipped, flip(x[rows], s, op.in_dim), delta, (need_x, need_delta))
            if dx is not None and some is not None and dp is not None:
                put_flipped(dx[rows], some, dp, s, op.in_dim)
            dmean, ddelta = _sum(dmean, dm), _sum(ddelta, dd)
        dmean, ddelta = (None if sum_ is None else sum_.to(x.dtype) for sum_ in (dmean, ddelta))
        return dx, dmean, ddelta

    def bias_gradient(self, grad: Tensor) -> Tensor:
        kernel = None if torch.is_grad_enabled() else chosen("sum_rows", grad, self.op.out_dim, required=False)
        return self.op.bias_gradient(grad) if kernel is None else kernel(grad, self.op.out_dim)


def _sum(total: Tensor | None, piece: Tensor | None) -> Tensor | None:
    """A running sum that half precision does not round at every piece."""
    if total is None or piece is None:
        return piece
    return total.to(torch.promote_types(total.dtype, torch.float32)) + piece
