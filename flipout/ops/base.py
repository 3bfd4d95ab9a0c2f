"""An op: arithmetic that is linear in its weight. It owns no Parameter and draws nothing."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ..draws.bits import transformed
from ..errors import Unsupported

Gradients = tuple[Tensor | None, Tensor | None]


class Op(ABC):
    """`apply`, its gradients, where the signs run, and its batched form: all a scheme needs."""

    in_dim: int  # the dimension of x over which s runs, and that of y over which r runs
    out_dim: int
    s_dim: int  # the same, of the weight
    r_dim: int
    in_features: int
    out_features: int
    formed_from: int | None  # rows that share a weight from which on a CPU forms it rather than multiplies twice

    @abstractmethod
    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor: ...

    @abstractmethod
    def infer(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """`apply` where nothing is differentiated: by another library where that is faster."""

    @abstractmethod
    def put(self, out: Tensor, x: Tensor, weight: Tensor) -> None:
        """out[:] = apply(x, weight), where nothing is differentiated."""

    @abstractmethod
    def gradients(self, grad: Tensor, x: Tensor, weight: Tensor, needs: tuple[bool, bool]) -> Gradients:
        """Gradients of `apply` in x and weight, where needed; built of differentiable operations."""

    @abstractmethod
    def bias_gradient(self, grad: Tensor) -> Tensor: ...

    @abstractmethod
    def batched(self, count: int) -> Self:
        """The same op with `count` weights, stacked in dimension 0, each for an equal share of x's rows in order."""

    @abstractmethod
    def factored(self, left: Tensor, right: Tensor) -> "tuple[tuple[Op, Tensor], tuple[Op, Tensor]]":
        """Two ops with their weights that after each other are this one with weights left · right: (count, d0, rank)
        times (count, rank, …), each for an equal share of x's rows in order."""

    @abstractmethod
    def positions(self, x: Tensor, y: Tensor) -> int:
        """How many times one row of x uses each weight to make y (tokens, pixels); 1 for a plain matrix product."""


def watched() -> bool:
    """Whether what is made may be differentiated or traced: then nothing is changed in place, nor left to kernels that
    have no gradient."""
    return torch.is_grad_enabled() or transformed()


def refuse_double_backward(what: str, instead: str) -> None:
    """torch's own decorator for this refuses too late, and not at all where the first gradient is a constant."""
    if torch.is_grad_enabled():
        raise Unsupported(
            f"{what} has its backward pass written out, which cannot be differentiated itself (create_graph=True). "
            f"{instead}."
        )


def apply_once(op: Op, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """op.apply; where all rows of x are one in memory (`expand`), for that one alone.

    Not where x is differentiated: rows that are one in memory still have a gradient each.
    """
    if x.dim() == 0 or x.stride(0) != 0 or x.shape[0] < 2:
        return op.apply(x, weight, bias)
    if transformed() or (torch.is_grad_enabled() and x.requires_grad):
        return op.apply(x, weight, bias)
    y = op.apply(x[:1], weight, bias)
    return y.expand(x.shape[0], *y.shape[1:])


def by_example(x: Tensor, signs: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """x with its rows split into examples, and the signs in a shape that broadcasts to it over dimension `dim`."""
    examples = signs.shape[0]
    if x.shape[0] == examples and x.dim() == 2:
        return x, signs
    shape = [1] * x.dim()
    shape[dim] = signs.shape[1]
    if x.shape[0] == examples:
        shape[0] = examples
        return x, signs.reshape(shape)
    return x.unflatten(0, (examples, -1)), signs.reshape(examples, *shape)


def signs_beside(x: Tensor, dim: int) -> tuple[int, ...] | None:
    """The shape in which signs, one row for each of x's, broadcast to it over dimension `dim`; None if as they are."""
    if x.dim() == 2:
        return None
    shape = [1] * x.dim()
    shape[0], shape[dim] = x.shape[0], x.shape[dim]
    return tuple(shape)


def flip(x: Tensor, signs: Tensor, dim: int) -> Tensor:
    """x times its examples' signs over dimension `dim`; the signs may come as masks of sign bits."""
    rows, factors = by_example(x, signs, dim)
    if factors.is_floating_point():
        return rows * factors if rows is x else (rows * factors).reshape(x.shape)
    return (rows.resolve_neg().view(factors.dtype) ^ factors).view(x.dtype).reshape(x.shape)


def put_flipped(out: Tensor, y: Tensor, p: Tensor, signs: Tensor, dim: int) -> None:
    """out[:] = y + flip(p); p is spent."""
    rows, factors = by_example(p, signs, dim)
    if factors.is_floating_point():
        out.copy_(y + (rows * factors).reshape(p.shape))
    else:
        rows.view(factors.dtype).bitwise_xor_(factors)
        torch.add(y, p, out=out)


def flipped(
    x: Tensor, op: Op, lifted: Op, mean: Tensor, delta: Tensor, r: Tensor, s: Tensor, bias: Tensor | None
) -> Tensor:
    """The definition of flipout: apply(x, W̄) + r ∘ apply(s ∘ x, ΔŴ)."""
    rows, factors = by_example(x, s, op.in_dim)
    p = lifted.apply(rows * factors if rows is x else (rows * factors).reshape(x.shape), delta)
    y = apply_once(op, x, mean, bias)
    rows, factors = by_example(p, r, op.out_dim)
    if rows is not p:
        return y + (rows * factors).view(p.shape)
    return y.addcmul_(rows, factors) if y.is_contiguous() and not watched() else torch.addcmul(y, rows, factors)


@dataclass
class Straight:
    """apply(x, W) with one weight for all rows, for many inputs."""

    op: Op
    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return self.op.apply(x, self.weight, self.bias)


@dataclass
class Flipped:
    """`flipped` with what a draw decides at hand, for many inputs."""

    op: Op
    lifted: Op  # the op for ΔŴ: batched where there are several bases
    mean: Tensor
    delta: Tensor
    r: Tensor
    s: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return flipped(x, self.op, self.lifted, self.mean, self.delta, self.r, self.s, self.bias)
