"""Ops: arithmetic that is linear in its weight. An op owns no Parameter and draws no random numbers."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..draws.bits import is_transformed
from ..draws.opaque import is_only_compiling
from ..errors import Unsupported

Gradients = tuple[Tensor | None, Tensor | None]


class Op(ABC):
    """Base class of ops: `apply`, its gradients, the dimensions of the signs, and the batched form.

    Schemes need nothing else, so every scheme works with every op. See `flipout.ops.linear.Linear` for the shortest op.

    Attributes:
        in_dim: The dimension of x that the input signs s run over.
        out_dim: The dimension of the output y that the output signs r run over.
        s_dim: The dimension of the weight that s runs over.
        r_dim: The dimension of the weight that r runs over.
        in_features: Number of input signs.
        out_features: Number of output signs.
        formed_from: On a CPU, the number of rows per weight from which forming each example's weight is faster than a
            second product. None if it never is.

    Example:
        >>> op = flipout.ops.linear.Linear(in_features=8, out_features=4)
        >>> y = op.apply(x, weight, bias)
    """

    in_dim: int
    out_dim: int
    s_dim: int
    r_dim: int
    in_features: int
    out_features: int
    formed_from: int | None

    @abstractmethod
    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the output (N, …) for an input (N, …).

        Args:
            x: The input.
            weight: The weight, or `count` stacked weights in the batched form.
            bias: A bias to add.
        """

    @abstractmethod
    def infer(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return `apply(x, weight, bias)`, by another library if that is faster. Called without autograd only.

        Args:
            x: The input, (N, …).
            weight: The weight.
            bias: A bias to add.
        """

    @abstractmethod
    def put(self, out: Tensor, x: Tensor, weight: Tensor, biases: Tensor | None = None) -> None:
        """Write `apply(x, weight)` into `out`, plus `biases` (bases, out), one per weight. Called without autograd.

        Args:
            out: The output to fill, (N, …).
            x: The input, (N, …).
            weight: The weight.
            biases: A bias for each stacked weight, or None.
        """

    @abstractmethod
    def gradients(self, grad: Tensor, x: Tensor, weight: Tensor, needs: tuple[bool, bool]) -> Gradients:
        """Return the gradients of x and of the weight, each None if not needed, by differentiable operations.

        Args:
            grad: The gradient of the output, (N, …).
            x: The input, (N, …).
            weight: The weight.
            needs: Whether the gradients of x and of the weight are needed.
        """

    @abstractmethod
    def bias_gradient(self, grad: Tensor) -> Tensor:
        """Return the gradient of the bias from the gradient of the output.

        Args:
            grad: The gradient of the output, (N, …).
        """

    @abstractmethod
    def batched(self, count: int) -> Self:
        """Return this op for `count` weights stacked in dimension 0. Each serves an equal share of x, in order.

        Args:
            count: The number of stacked weights.
        """

    @abstractmethod
    def factored(self, left: Tensor, right: Tensor) -> "tuple[tuple[Op, Tensor], tuple[Op, Tensor]]":
        """Return two ops with their weights that, one after the other, apply the weights left · right.

        Each of the `count` products serves an equal share of x's rows, in order.

        Args:
            left: Factors of shape (count, d0, rank).
            right: Factors of shape (count, rank, …).
        """

    @abstractmethod
    def positions(self, x: Tensor, y: Tensor) -> int:
        """Return how often a row of x uses each weight: tokens or pixels, 1 for a plain matrix product.

        Args:
            x: The input, (N, …).
            y: The output, (N, …).
        """


def is_tracked() -> bool:
    """Return True if a result may be differentiated or traced.

    In-place changes and kernels without a gradient are then forbidden.
    """
    return torch.is_grad_enabled() or is_transformed()


def refuse_double_backward(what: str, instead: str) -> None:
    """Refuse to differentiate a backward pass.

    torch's own decorator, `once_differentiable`, raises too late, and not at all if the first gradient is a constant.
    """
    if torch.is_grad_enabled():
        raise Unsupported(
            f"{what} has a hand-written backward pass, which cannot be differentiated again (create_graph=True). "
            f"{instead}."
        )


def apply_once(op: Op, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return op.apply(x, weight, bias). If x is one row that was expanded, compute that row only.

    If x needs a gradient, all rows are computed: rows that share memory still have separate gradients.
    """
    if x.dim() == 0 or x.stride(0) != 0 or x.shape[0] < 2:
        return op.apply(x, weight, bias)
    if is_transformed() or (torch.is_grad_enabled() and x.requires_grad):
        return op.apply(x, weight, bias)
    y = op.apply(x[:1], weight, bias)
    return y.expand(x.shape[0], *y.shape[1:])


def by_example(x: Tensor, signs: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Split the rows of x into examples, and shape the signs so that they broadcast to it over dimension `dim`."""
    examples = signs.shape[0]
    if x.shape[0] == examples and x.dim() == 2:
        return x, signs
    shape = [1] * x.dim()
    shape[dim] = signs.shape[1]
    if x.shape[0] == examples:
        shape[0] = examples
        return x, signs.reshape(shape)
    return x.unflatten(0, (examples, -1)), signs.reshape(examples, *shape)


def sign_shape(x: Tensor, dim: int) -> tuple[int, ...] | None:
    """Return the shape in which (rows, features) signs broadcast to x over `dim`, or None if they already do."""
    if x.dim() == 2:
        return None
    shape = [1] * x.dim()
    shape[0], shape[dim] = x.shape[0], x.shape[dim]
    return tuple(shape)


def flip(x: Tensor, signs: Tensor, dim: int) -> Tensor:
    """Return x times the signs of its examples over dimension `dim`. The signs may be masks of sign bits."""
    rows, factors = by_example(x, signs, dim)
    if factors.is_floating_point():
        return rows * factors if rows is x else (rows * factors).reshape(x.shape)
    return (rows.resolve_neg().view(factors.dtype) ^ factors).view(x.dtype).reshape(x.shape)


def put_flipped(out: Tensor, y: Tensor, p: Tensor, signs: Tensor, dim: int) -> None:
    """Write y + flip(p, signs, dim) into `out`. p may be overwritten."""
    rows, factors = by_example(p, signs, dim)
    if factors.is_floating_point():
        out.copy_(y + (rows * factors).reshape(p.shape))
    else:
        rows.view(factors.dtype).bitwise_xor_(factors)
        torch.add(y, p, out=out)


def _flipped_product(x: Tensor, s: Tensor, delta: Tensor, delta_op: Op, dim: int) -> Tensor:
    """Return apply(s ∘ x, ΔŴ)."""
    rows, factors = by_example(x, s, dim)
    return delta_op.apply(rows * factors if rows is x else (rows * factors).reshape(x.shape), delta)


def flipped(
    x: Tensor, op: Op, delta_op: Op, mean: Tensor, delta: Tensor, r: Tensor, s: Tensor, bias: Tensor | None
) -> Tensor:
    """Return apply(x, W̄) + r ∘ apply(s ∘ x, ΔŴ): the definition of flipout.

    `delta_op` is the op for ΔŴ: `op` itself, or its batched form if there are several bases.
    """
    if is_only_compiling() and torch.is_grad_enabled():
        p = checkpoint(_flipped_product, x, s, delta, delta_op, op.in_dim, use_reentrant=False)
    else:
        p = _flipped_product(x, s, delta, delta_op, op.in_dim)
    y = apply_once(op, x, mean, bias)
    rows, factors = by_example(p, r, op.out_dim)
    if rows is not p:
        return y + (rows * factors).view(p.shape)
    return y.addcmul_(rows, factors) if y.is_contiguous() and not is_tracked() else torch.addcmul(y, rows, factors)


@dataclass
class Straight:
    """apply(x, W) with one weight for all rows, as a function of x."""

    op: Op
    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return self.op.apply(x, self.weight, self.bias)


@dataclass
class Flipped:
    """`flipped` with mean, ΔŴ, signs and bias fixed, as a function of x."""

    op: Op
    delta_op: Op  # the op for ΔŴ: the batched form of `op` if there are several bases
    mean: Tensor
    delta: Tensor
    r: Tensor
    s: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return flipped(x, self.op, self.delta_op, self.mean, self.delta, self.r, self.s, self.bias)
