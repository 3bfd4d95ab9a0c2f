"""An op of your own from three things: how it applies a weight, its batched form, and where the signs run."""

from abc import abstractmethod
from typing import Self

import torch
from torch import Tensor

from ..errors import Unsupported
from .base import Gradients, Op


class SimpleOp(Op):
    """An op that is linear in its weight, with everything else derived from `apply` and `batched`.

    A subclass states `apply`, `batched`, and six numbers: `in_features` and `out_features`; `in_dim` and `out_dim`, the
    dimensions of x and y that the signs run over; `s_dim` and `r_dim`, the same dimensions of the weight. Every scheme
    then serves it, except `low_rank`, which needs an `Op` with a `factored` form.

    Example:
        >>> class Turned(flipout.ops.SimpleOp):
        ...     in_dim = out_dim = -1
        ...     s_dim, r_dim = 0, 1
        ...     def apply(self, x, weight, bias=None): ...
        ...     def batched(self, count): ...
    """

    formed_from = None

    @abstractmethod
    def apply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the output (N, …) of x (N, …) under one weight; under `count` of them in the batched form."""

    @abstractmethod
    def batched(self, count: int) -> Self:
        """Return the op for `count` weights, stacked in dimension 0, each for an equal share of x's rows in order."""

    def infer(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return self.apply(x, weight, bias)

    def put(self, out: Tensor, x: Tensor, weight: Tensor, biases: Tensor | None = None) -> None:
        out.copy_(self.apply(x, weight))
        if biases is not None:
            shape = [1] * (out.dim() + 1)
            shape[0], shape[self.out_dim % out.dim() + 1] = biases.shape
            out.unflatten(0, (len(biases), -1)).add_(biases.view(shape))

    def gradients(self, grad: Tensor, x: Tensor, weight: Tensor, needs: tuple[bool, bool]) -> Gradients:
        if not any(needs):
            return None, None
        pull_back = torch.func.vjp(self.apply, x, weight)[1]
        dx, dw = pull_back(grad)
        return dx if needs[0] else None, dw if needs[1] else None

    def bias_gradient(self, grad: Tensor) -> Tensor:
        out_dim = self.out_dim % grad.dim()
        return grad.sum([dim for dim in range(grad.dim()) if dim != out_dim])

    def factored(self, left: Tensor, right: Tensor) -> tuple[tuple[Op, Tensor], tuple[Op, Tensor]]:
        raise Unsupported(
            f"{type(self).__name__}: scheme 'low_rank' needs an op with a factored form, which a SimpleOp does not "
            "have. Use scheme='flipout', 'independent' or 'shared', or subclass flipout.ops.Op."
        )

    def positions(self, x: Tensor, y: Tensor) -> int:
        return y.numel() // max(y.shape[0] * self.out_features, 1)
