"""A layer remembers how it computed its usual call: a product with one weight, in training, under its root's draw.

What decides the computation (shape and dtype of the input, the layer, the scheme) is examined once. Later calls with
the same input shape check only what may have changed since. Every other call takes the long way, which defines what
the short way here must compute.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .._torch_internals import graph_task_id
from ..draws.at_once import AtOnce
from ..ops.base import Op, sign_shape
from ..schemes import Flipout, Shared
from .checkpoints import this_thread
from .inputs import check_batch
from .layers import label_of

if TYPE_CHECKING:
    from .base import Perturbed
    from .parameters import Perturbations

_PLAIN = (nn.Parameter, Tensor)


class RememberedCall:
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
        """Return the output, or None if this call has to take the long way."""
        plan, running = layer.flipout, self.root.thread.running
        session = running.session
        if session is None or plan.open_contexts or not layer.training or layer._is_replica:
            return None
        if type(x) not in _PLAIN or x.shape != self.shape or x.dtype != self.dtype or not x.is_cpu:
            return None
        is_traced = torch.compiler.is_compiling() or this_thread.decisions is not None
        if is_traced or graph_task_id() != -1 or torch.is_autocast_enabled("cpu"):
            return None
        if session.examples is None or (self.is_flipped and not session.is_certain):
            inputs = running.inputs
            if self.is_flipped and not (inputs and inputs[0] and inputs[0][0] is x):  # the model's input needs no check
                check_batch(layer, self.shape[0])
            session.count(self.shape[0], self.label, is_certain=self.is_flipped)
        if (session.examples != self.shape[0] and self.is_flipped) or session.formed is not None:
            return None
        at_once = session.at_once(self.dtype, self.scheme.group)
        if at_once is None or (
            self.options and self.options != tuple(getattr(layer, o) for o in layer._declared.remembered_options)
        ):
            return None
        parameters = layer._parameters
        try:
            mean, bias, noise = parameters["weight"], parameters["bias"], at_once.noise[self.key]
            learned = {}
            for suffix, name in self.learned:
                learned[suffix] = parameters[name]
        except KeyError:  # parametrised
            return None
        if mean is None or type(mean) not in _PLAIN or mean.dtype != self.dtype or not x.stride(0):
            return None
        if noise.shape != mean.shape or (bias is not None and bias.dtype != self.dtype):
            return None
        return self._product(x, at_once, self.distribution.spread(mean, **learned) * noise, mean, bias)  # pyright: ignore[reportArgumentType]

    def _product(self, x: Tensor, at_once: AtOnce, delta: Tensor, mean: Tensor, bias: Tensor | None) -> Tensor:
        op = self.op
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


def call_as_remembered(layer: "Perturbed", x: Tensor) -> Tensor | None:
    """Return the layer's output if a call like this one is remembered, else None."""
    remembered = layer.flipout.remembered
    return None if remembered is None else remembered(layer, x)


def remember_call(layer: "Perturbed", noise: "Perturbations", op: Op, x: Tensor, y: Tensor) -> None:
    """Remember the call that was just made, if the next one like it can take the short way."""
    plan, at_once, session = layer.flipout, noise.at_once, noise.session
    if at_once is None or "weight" not in noise.keys:
        return
    key, scheme = noise.keys["weight"], noise.scheme
    is_usual = at_once.bases == 1 and key in at_once.noise and layer.training
    is_usual = is_usual and not plan.open_contexts and len(plan.roots) == 1
    is_usual = is_usual and "bias" not in plan.distributions and "bias" in layer._parameters and not plan.quiet_rows
    is_usual = is_usual and plan.roots[0][0].thread.running.session is session and noise.draw.rows == 1
    is_usual = is_usual and x.shape[0] == session.examples
    # Folded rows are no examples, even where this batch had one row for each: the next may have several.
    is_usual = is_usual and (plan.layout is None or plan.layout.order == "plain")
    if not is_usual or x.dtype != noise.dtype or not isinstance(scheme, (Flipout, Shared)):
        return
    if isinstance(scheme, Flipout) and not scheme.is_small(op, x, key, at_once, op.out_features):
        return
    plan.remembered = RememberedCall(layer, op, x, y, key, plan.roots[0][0])
