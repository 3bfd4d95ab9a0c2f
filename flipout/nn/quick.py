"""The usual call of a layer, remembered: a product with one weight, in training, under the draw of its root's pass.

What decides how it is computed (the shape and dtype of the input, the layer, the scheme) is looked at once. Later calls
with the same input shape ask only what may have changed since. Whatever is unusual takes the long way, which is the
definition of what happens here.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..draws.at_once import AtOnce
from ..ops.base import Op, sign_shape
from ..schemes import Flipout, Shared
from .layers import label_of
from .tape import this_thread

if TYPE_CHECKING:
    from .base import Perturbed
    from .parameters import Perturbations

_PLAIN = (nn.Parameter, Tensor)


class Quick:
    """How a layer computes an input of one shape."""

    __slots__ = (
        "distribution",
        "dtype",
        "is_flipped",
        "key",
        "label",
        "learned",
        "op",
        "options",
        "r_shape",
        "root",
        "s_shape",
        "scheme",
        "shape",
    )

    def __init__(self, layer: "Perturbed", op: Op, x: Tensor, y: Tensor, key: int, root: Any) -> None:
        self.op, self.key, self.root, self.label = op, key, root, label_of(layer)
        self.shape, self.dtype, self.scheme = x.shape, x.dtype, layer.flipout.converted_scheme
        self.distribution = layer.flipout.distributions["weight"]
        self.learned = tuple((suffix, f"weight_{suffix}") for suffix in layer.flipout.learned.get("weight", ()))
        self.is_flipped = isinstance(self.scheme, Flipout)
        self.options = tuple(getattr(layer, option) for option in layer._declared.remembered_options)
        self.s_shape, self.r_shape = sign_shape(x, op.in_dim), sign_shape(y, op.out_dim)

    def __call__(self, layer: "Perturbed", x: Tensor) -> Tensor | None:
        """The output, or None where something is unusual."""
        plan, session = layer.flipout, self.root.thread.running.session
        if session is None or plan.opened or not layer.training or layer._is_replica:
            return None
        if type(x) not in _PLAIN or x.shape != self.shape or x.dtype != self.dtype or not x.is_cpu:
            return None
        is_traced = torch.compiler.is_compiling() or this_thread.tape is not None
        if is_traced or torch._C._current_graph_task_id() != -1 or torch.is_autocast_enabled("cpu"):
            return None
        if session.examples is None or (self.is_flipped and not session.is_certain):
            session.count(self.shape[0], self.label, is_certain=self.is_flipped)
        if (session.examples != self.shape[0] and self.is_flipped) or session.formed is not None:
            return None
        made = session.at_once(self.dtype, self.scheme.group)
        if made is None or (
            self.options and self.options != tuple(getattr(layer, o) for o in layer._declared.remembered_options)
        ):
            return None
        parameters = layer._parameters
        try:
            mean, bias, noise = parameters["weight"], parameters["bias"], made.noise[self.key]
            learned = {}
            for suffix, name in self.learned:
                learned[suffix] = parameters[name]
        except KeyError:  # parametrised
            return None
        if mean is None or type(mean) not in _PLAIN or mean.dtype != self.dtype or not x.stride(0):
            return None
        if noise.shape != mean.shape or (bias is not None and bias.dtype != self.dtype):
            return None
        return self._product(x, made, self.distribution.spread(mean, **learned) * noise, mean, bias)  # pyright: ignore[reportArgumentType]

    def _product(self, x: Tensor, made: AtOnce, delta: Tensor, mean: Tensor, bias: Tensor | None) -> Tensor:
        op = self.op
        if not self.is_flipped:
            return op.apply(x, mean + delta, bias)
        r, s = made.signs[self.key, op.r_dim], made.signs[self.key, op.s_dim]
        if self.s_shape is not None:
            s = s.view(self.s_shape)
        if self.r_shape is not None:
            r = r.view(self.r_shape)
        p = op.apply(x * s, delta)  # in the order of the long way: a checkpoint recomputes by that
        return torch.addcmul(op.apply(x, mean, bias), p, r)


def call(layer: "Perturbed", x: Tensor) -> Tensor | None:
    """Return the layer's output if a call like this one is remembered, else None."""
    quick = layer.flipout.quick
    return None if quick is None else quick(layer, x)


def remember(layer: "Perturbed", noise: "Perturbations", op: Op, x: Tensor, y: Tensor) -> None:
    """Remember the call that was just made, if the next one like it can be made quickly."""
    plan, made, session = layer.flipout, noise.made, noise.session
    if made is None or "weight" not in noise.keys:
        return
    key, scheme = noise.keys["weight"], noise.scheme
    usual = made.bases == 1 and key in made.noise and not plan.opened and len(plan.roots) == 1 and layer.training
    usual = usual and "bias" not in plan.distributions and "bias" in layer._parameters and not plan.quiet_rows
    usual = usual and plan.roots[0][0].thread.running.session is session and noise.draw.rows == 1
    usual = usual and x.shape[0] == session.examples
    if not usual or x.dtype != noise.dtype or not isinstance(scheme, (Flipout, Shared)):
        return
    if isinstance(scheme, Flipout) and not scheme.is_small(op, x, key, made, op.out_features):
        return
    plan.quick = Quick(layer, op, x, y, key, plan.roots[0][0])
