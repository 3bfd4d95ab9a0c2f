"""A layer remembers how it computed its usual call: a product with one weight, under its root's draw or a held one.

What decides the computation (shape, dtype and device of the input, autocast, the layer, the scheme, the contexts
around, the kernels) is examined once. Later calls with the same input shape check only what may have changed since.
Every other call takes the long way, which defines what the short ways must compute: `SmallCall` for small inputs on a
CPU, `FusedCall` where kernels make the noise.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

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
from .spans import Span, is_recomputing, spans_of_task

if TYPE_CHECKING:
    from .base import Perturbed
    from .parameters import Perturbations
    from .plan import Plan

PLAIN = (nn.Parameter, Tensor)


class _Contexts(NamedTuple):
    """What the contexts around a call decide. Entering or leaving one makes another tuple of spans."""

    spans: tuple[Span, ...]
    held: Span | None  # the innermost `hold`
    chosen: Span | None  # the innermost `using`
    is_sampled: bool  # one of them asks for noise in eval mode too

    def are_around(self, spans: tuple[Span, ...]) -> bool:
        """Return True if these spans are the same and none that counts has ended in another thread."""
        if spans is not self.spans or (self.held is not None and self.held.end is not None):
            return False
        return self.chosen is None or self.chosen.end is None


class RememberedCall(ABC):
    """How a layer computes an input of one shape."""

    serves_contexts: ClassVar[bool] = False  # also inside `hold`, `sampling` and `using`

    __slots__ = (
        "autocast",
        "backend",
        "contexts",
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
        "serves_passes",
        "shape",
    )

    def __init__(self, layer: "Perturbed", noise: "Perturbations", op: Op, x: Tensor) -> None:
        plan = layer.flipout
        self.op, self.key, self.root, self.label = op, noise.keys["weight"], plan.roots[0][0], label_of(layer)
        self.shape, self.dtype, self.device, self.scheme = x.shape, x.dtype, x.device, noise.scheme
        # A context may ask for another scheme than the model was converted with, or for keys of a part of it.
        self.serves_passes = self.scheme == plan.converted_scheme and self.key == plan.roots[0][1]["weight"]
        self.contexts: _Contexts | None = None  # those of the latest call inside any
        self.kind, self.backend = x.device.type, backend.requested()
        self.autocast = torch.get_autocast_dtype(self.kind) if torch.is_autocast_enabled(self.kind) else None
        self.distribution = plan.distributions["weight"]
        self.learned = tuple((suffix, f"weight_{suffix}") for suffix in plan.learned.get("weight", ()))
        self.is_flipped = isinstance(self.scheme, Flipout)
        self.options = tuple(getattr(layer, option) for option in layer._declared.remembered_options)

    def __call__(self, layer: "Perturbed", x: Tensor) -> Tensor | None:
        """Return the output, or None if this call has to take the long way."""
        plan, running = layer.flipout, self.root.thread.running
        if layer._is_replica or torch.compiler.is_compiling():
            return None
        session = running.session
        if plan.open_contexts:
            session = self._session_inside(plan, session, layer.training) if running.depth else None
        elif not (layer.training and self.serves_passes):
            return None
        if session is None:
            return None
        if type(x) not in PLAIN or x.shape != self.shape or x.dtype != self.dtype or x.device != self.device:
            return None
        if this_thread.decisions is not None or graph_task_id() != -1:  # a checkpoint runs or is recomputed
            return None
        if torch.is_autocast_enabled(self.kind) != (self.autocast is not None):
            return None
        if self.autocast is not None and torch.get_autocast_dtype(self.kind) != self.autocast:
            return None
        if session.examples is None or (self.is_flipped and not session.is_certain):
            inputs = running.inputs
            is_only_input = inputs and inputs[0] and inputs[0][0] is x and not (inputs[0][1:] or inputs[1])
            if self.is_flipped and not is_only_input:  # other inputs may have another number of rows
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

    def _session_inside(self, plan: "Plan", running: Pass | None, training: bool) -> Pass | None:
        """Return the pass that a call inside contexts sees; None if it has to be found the long way."""
        spans, contexts = spans_of_task(), self.contexts  # read once: other threads may write it
        if contexts is None or not contexts.are_around(spans):
            contexts = self._contexts(plan, spans)
            if contexts is None:
                return None
            self.contexts = contexts
        if contexts.held is None:
            return running if training or contexts.is_sampled else None
        session = contexts.held.session
        is_usual = session is not None and session.draw.rows == 1 and not session.draw.antithetic
        return session if is_usual else None

    def _contexts(self, plan: "Plan", spans: tuple[Span, ...]) -> _Contexts | None:
        """Return what the contexts around decide, or None if they ask for another scheme or other keys."""
        if not self.serves_contexts or plan.scheme != self.scheme:
            return None
        of_layer = [span for span in reversed(spans) if plan in (span.keys or ()) and span.end is None]
        held = next((span for span in of_layer if span.session is not None), None)
        if held is not None and (held.keys or {})[plan]["weight"] != self.key:
            return None
        chosen = next((span for span in of_layer if span.scheme is not None), None)
        return _Contexts(spans, held, chosen, plan.sampled) if of_layer else None

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
    running = plan.roots[0][0].thread.running
    is_usual = running.depth > 0 and len(plan.roots) == 1 and noise.draw.rows == 1 and x.shape[0] == session.examples
    is_usual = is_usual and "bias" not in plan.distributions and "bias" in layer._parameters and not plan.quiet_rows
    # Folded rows are no examples, even where this batch had one row for each: the next may have several.
    is_usual = is_usual and (plan.layout is None or plan.layout.order == "plain")
    is_plain = layer.training and not plan.open_contexts and running.session is session
    if is_usual and (is_plain or (plan.open_contexts and not is_recomputing())):
        remember = fused_call if noise.at_once is None else small_call
        remembered = remember(layer, noise, op, x, y)
        if remembered is not None and (is_plain or remembered.serves_contexts):
            plan.remembered = remembered
