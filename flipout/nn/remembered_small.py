"""The remembered call of a small input on a CPU: torch's own operations, signs and noise that the pass has made."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..draws.passes import Pass
from ..ops.base import Op, sign_shape
from ..schemes import Flipout
from .remembered_call import RememberedCall

if TYPE_CHECKING:
    from .base import Perturbed
    from .parameters import Perturbations


class SmallCall(RememberedCall):
    """Multiply by torch's own operations, under autograd."""

    serves_contexts = True
    __slots__ = ("r_shape", "s_shape")

    def __init__(self, layer: "Perturbed", noise: "Perturbations", op: Op, x: Tensor, y: Tensor) -> None:
        super().__init__(layer, noise, op, x)
        self.s_shape, self.r_shape = sign_shape(x, op.in_dim), sign_shape(y, op.out_dim)

    def _product(
        self, session: Pass, x: Tensor, mean: Tensor, bias: Tensor | None, learned: dict[str, Any]
    ) -> Tensor | None:
        at_once = session.at_once(self.dtype, self.scheme.group)
        noise = None if at_once is None else at_once.noise.get(self.key)
        if at_once is None or noise is None or at_once.bases != 1 or mean.dtype != self.dtype or not x.stride(0):
            return None
        if noise.shape != mean.shape or (bias is not None and bias.dtype != self.dtype):
            return None
        if at_once.base and not self.is_flipped:
            return None  # examples that share one weight have the first base, whatever `group` is
        op, delta = self.op, self.distribution.spread(mean, **learned) * noise
        if not self.is_flipped:
            return op.apply(x, mean + delta, bias)
        r, s = at_once.signs[self.key, op.r_dim], at_once.signs[self.key, op.s_dim]
        if self.s_shape is not None:
            s = s.view(self.s_shape)
        if self.r_shape is not None:
            r = r.view(self.r_shape)
        # In the same order as the long way, by which a checkpoint recomputes.
        p = op.apply(x * s, delta)
        return torch.addcmul(op.apply(x, mean, bias), p, r)


def small_call(layer: "Perturbed", noise: "Perturbations", op: Op, x: Tensor, y: Tensor) -> SmallCall | None:
    """Return the call to remember, or None if the next one like it must take the long way."""
    at_once, scheme, key = noise.at_once, noise.scheme, noise.keys["weight"]
    if at_once is None or at_once.bases != 1 or key not in at_once.noise or x.dtype != noise.dtype:
        return None
    if isinstance(scheme, Flipout) and not scheme.is_small(op, x, key, at_once, op.out_features):
        return None
    return SmallCall(layer, noise, op, x, y)
