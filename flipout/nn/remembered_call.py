"""A layer remembers how it computed its usual call: a product with one weight, in training, under its root's draw.

What decides the computation (shape, dtype and device of the input, autocast, the layer, the scheme, the kernels) is
examined once. Later calls with the same input shape check only what may have changed since. Every other call takes the
long way, which defines what the short ways must compute: `SmallCall` for small inputs on a CPU, `FusedCall` where
kernels make the noise.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .. import backend
from .._torch_internals import graph_task_id
from ..draws.passes import Pass
from ..ops.base import Op
from ..schemes import Flipout, Shared
from .checkpoints import this_thread
from .generation import sequences_of_prompt
from .inputs import check_batch
from .layers import label_of

if TYPE_CHECKING:
    from .base import Perturbed
    from .parameters import Perturbations

PLAIN = (nn.Parameter, Tensor)


class RememberedCall(ABC):
    """How a layer computes an input of one shape."""

    __slots__ = (
        "autocast",
        "backend",
        "device",
        "distribution",
        "dtype",
        "is_flipped",
        "key",
        "kind",
        "label",
        "learned",
        "op",
        "options",
        "root",
        "scheme",
        "shape",
    )

    def __init__(self, layer: "Perturbed", noise: "Perturbations", op: Op, x: Tensor) -> None:
        plan = layer.flipout
        self.op, self.key, self.root, self.label = op, noise.keys["weight"], plan.roots[0][0], label_of(layer)
        self.shape, self.dtype, self.device, self.scheme = x.shape, x.dtype, x.device, plan.converted_scheme
        self.kind, self.backend = x.device.type, backend.requested()
        self.autocast = torch.get_autocast_dtype(self.kind) if torch.is_autocast_enabled(self.kind) else None
        self.distribution = plan.distributions["weight"]
        self.learned = tuple((suffix, f"weight_{suffix}") for suffix in plan.learned.get("weight", ()))
        self.is_flipped = isinstance(self.scheme, Flipout)
        self.options = tuple(getattr(layer, option) for option in layer._declared.remembered_options)

    def __call__(self, layer: "Perturbed", x: Tensor) -> Tensor | None:
        """Return the output, or None if this call has to take the long way."""
        plan, running = layer.flipout, self.root.thread.running
        session = running.session
        if session is None or plan.open_contexts or not layer.training or layer._is_replica:
            return None
        if type(x) not in PLAIN or x.shape != self.shape or x.dtype != self.dtype or x.device != self.device:
            return None
        is_traced = torch.compiler.is_compiling() or this_thread.decisions is not None
        if is_traced or graph_task_id() != -1 or torch.is_autocast_enabled(self.kind) != (self.autocast is not None):
            return None
        if self.autocast is not None and torch.get_autocast_dtype(self.kind) != self.autocast:
            return None
        if session.examples is None or (self.is_flipped and not session.is_certain):
            inputs = running.inputs
            if self.is_flipped and not (inputs and inputs[0] and inputs[0][0] is x):  # the model's input needs no check
                if sequences_of_prompt(self.shape[0], 1) > 1:
                    return None  # the rows of this pass are beams, though those of the remembered one were examples
                check_batch(layer, self.shape[0])
            session.count(self.shape[0], self.label, is_certain=self.is_flipped)
        if (session.examples != self.shape[0] and self.is_flipped) or session.formed is not None:
            return None
        if self.options and self.options != tuple(getattr(layer, o) for o in layer._declared.remembered_options):
            return None
        parameters = layer._parameters
        try:
            mean, bias = parameters["weight"], parameters["bias"]
            learned = {}
            for suffix, name in self.learned:
                learned[suffix] = parameters[name]
        except KeyError:  # parametrised
            return None
        if mean is None or type(mean) not in PLAIN:
            return None
        return self._product(session, x, mean, bias, learned)

    @abstractmethod
    def _product(
        self, session: Pass, x: Tensor, mean: Tensor, bias: Tensor | None, learned: dict[str, Any]
    ) -> Tensor | None:
        """Return the output, or None if the Parameters, the draw or a choice of the user ask for the long way."""


def call_as_remembered(layer: "Perturbed", x: Tensor) -> Tensor | None:
    """Return the layer's output if its weights are formed, or if a call like this one is remembered, else None."""
    plan = layer.flipout
    if plan.formed is not None:
        return plan.formed(layer, x)
    remembered = plan.remembered
    return None if remembered is None else remembered(layer, x)


def remember_call(layer: "Perturbed", noise: "Perturbations", op: Op, x: Tensor, y: Tensor) -> None:
    """Remember the call that was just made, if the next one like it can take a short way."""
    from .remembered_fused import fused_call
    from .remembered_small import small_call

    plan, session, scheme = layer.flipout, noise.session, noise.scheme
    if "weight" not in noise.keys or not isinstance(scheme, (Flipout, Shared)):
        return
    is_usual = layer.training and not plan.open_contexts and len(plan.roots) == 1
    is_usual = is_usual and "bias" not in plan.distributions and "bias" in layer._parameters and not plan.quiet_rows
    is_usual = is_usual and plan.roots[0][0].thread.running.session is session and noise.draw.rows == 1
    is_usual = is_usual and x.shape[0] == session.examples
    # Folded rows are no examples, even where this batch had one row for each: the next may have several.
    is_usual = is_usual and (plan.layout is None or plan.layout.order == "plain")
    if is_usual:
        remember = fused_call if noise.at_once is None else small_call
        plan.remembered = remember(layer, noise, op, x, y) or plan.remembered
