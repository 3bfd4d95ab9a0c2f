"""The remembered call where kernels make signs and noise: flipout's Function, with its arguments ready."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import backend
from .._perturbation import Signs
from ..distributions.scaled import ScaledNoise, sample
from ..draws.bits import is_transformed
from ..draws.noise import NOISE, Origin
from ..draws.passes import Pass
from ..ops.base import Op
from ..schemes import Flipout
from ..schemes.product import FlippedProduct
from ..schemes.spec import Spec
from .remembered_call import RememberedCall

if TYPE_CHECKING:
    from .base import Perturbed
    from .parameters import Perturbations


class FusedCall(RememberedCall):
    """Calls `FlippedProduct` with a spec and a noise that are reused while draws number their examples alike."""

    __slots__ = ("compute_dtype", "fold", "is_fused", "mean_dtype", "mean_shape", "offset", "scaled", "spec")

    def __init__(
        self,
        layer: "Perturbed",
        noise: "Perturbations",
        op: Op,
        x: Tensor,
        mean: Tensor,
        scaled: ScaledNoise,
        *,
        is_fused: bool,
    ) -> None:
        super().__init__(layer, noise, op, x)
        self.compute_dtype, self.mean_dtype, self.mean_shape = noise.dtype, mean.dtype, mean.shape
        self.scaled, self.is_fused = scaled, is_fused
        self.fold, self.offset, self.spec = noise.draw.fold, noise.session.offset, self._spec(noise.session.offset)

    def _spec(self, offset: int) -> Spec:
        return Spec(self.op, self.op, Signs(self.key, offset, self.shape[0], False))

    def _product(
        self, session: Pass, x: Tensor, mean: Tensor, bias: Tensor | None, learned: dict[str, Any]
    ) -> Tensor | None:
        draw, dtype = session.draw, self.compute_dtype
        if mean.dtype != self.mean_dtype or mean.shape != self.mean_shape or mean.device != self.device:
            return None
        if draw.seed.device != self.device or draw.fold != self.fold or not is_usual_draw(session):
            return None
        if backend.requested() != self.backend or is_transformed() or not torch.is_grad_enabled():
            return None
        if session.offset != self.offset:
            self.offset, self.spec = session.offset, self._spec(session.offset)
        source = self.distribution.source(**learned)
        factor = self.distribution.spread(mean, **learned) if source is None else source
        if not self.is_fused:
            factor = sample(self.scaled, factor, draw.seed, dtype)
        # The three casts are no-ops where the dtypes are equal.
        x, mean = x.to(dtype), mean.to(dtype)
        bias = None if bias is None else bias.to(dtype)
        if not self.is_fused:
            return FlippedProduct.apply(x, mean, bias, factor, draw.seed, self.spec)  # pyright: ignore[reportReturnType]
        return FlippedProduct.apply(x, mean, bias, factor, draw.seed, self.spec, draw.seed, self.scaled)  # pyright: ignore[reportReturnType]


def fused_call(layer: "Perturbed", noise: "Perturbations", op: Op, x: Tensor, _: Tensor) -> FusedCall | None:
    """Return the call to remember, or None if the next one like it must take the long way."""
    scheme, session = noise.scheme, noise.session
    is_plain = isinstance(scheme, Flipout) and scheme == Flipout() and is_usual_draw(session)
    has_kernels = x.is_cuda or backend.asks_for_kernels()
    if not (is_plain and has_kernels and torch.is_grad_enabled() and x.numel()) or is_transformed():
        return None
    p = noise["weight"]
    factor, scaled = p._scaled(Origin(p.key, NOISE, 0, noise.draw.fold))
    if scaled.kind is None or scaled.kernel(noise.draw.seed, factor, softplus=scaled.softplus) is None:
        return None
    is_fused = p.kernel_inputs(0) is not None
    return FusedCall(layer, noise, op, x, p.parameter, scaled, is_fused=is_fused)


def is_usual_draw(session: Pass) -> bool:
    """Return True for the draw of a training pass: one base, one row an example, and seeds that autograd may keep."""
    draw = session.draw
    is_single = draw.rows == 1 and draw.group is None and draw.sign_seed is None and not draw.antithetic
    return is_single and draw.can_keep_seeds
