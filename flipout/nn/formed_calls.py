"""A short way through `predict(…, joint=True)`: a layer whose weights are formed is called as a plain one.

All rows of such a pass see the same weights, so the layer needs neither the examples nor the scheme. The first pass
takes the long way. It checks the input of every layer, and shows which weights are formed and in which dtype.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..draws.passes import Pass
from .base import Perturbed
from .conv import _Conv
from .declaration import sign_groups
from .held_weights import held_pass
from .layers import parameter_of
from .linear import Linear
from .parameters import Perturbations
from .plan import Plan

_PLAIN = (nn.Parameter, Tensor)
_Weights = tuple[Tensor, Tensor | None]  # the weight and the bias of one sample
_Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class FormedCalls:
    """The weights of the samples that are formed together. A context for the layers that may be called with them."""

    __slots__ = ("at", "dtypes", "found", "layers", "span", "thread")

    def __init__(self, layers: Iterable[Perturbed]) -> None:
        """Serve those layers that call themselves as plain ones. `predict` has opened its context already."""
        self.layers = [layer for layer in layers if isinstance(layer, (Linear, _Conv))]
        self.span = self.layers[0].flipout.open_contexts[-1] if self.layers else None
        self.thread = threading.get_ident()
        self.at = 0  # the sample whose pass is running
        self.found: dict[Plan, tuple[_Product, list[_Weights]]] = {}
        self.dtypes: dict[Plan, torch.dtype] | None = None  # of products, as the first pass has shown

    @contextmanager
    def open(self) -> Iterator[None]:
        """Let the layers find these weights."""
        for layer in self.layers:
            layer.flipout.formed = self
        try:
            yield
        finally:
            for layer in self.layers:
                if layer.flipout.formed is self:  # another thread may have put its own there
                    layer.flipout.formed = None

    def __call__(self, layer: Perturbed, x: Any) -> Tensor | None:
        """Return the layer's output under the running sample, or None if this call has to take the long way."""
        plan = layer.flipout
        found = self.found.get(plan)
        if found is None or type(x) not in _PLAIN or threading.get_ident() != self.thread:
            return None
        if plan.open_contexts[-1] is not self.span or torch.compiler.is_compiling():
            return None
        product, weights = found
        weight, bias = weights[self.at]
        if x.dtype != weight.dtype:
            if not torch.is_autocast_enabled(x.device.type):
                return None  # the long way says what is wrong
            x = x.to(weight.dtype)
        return product(x, weight, bias)

    def begin(self, session: Pass, at: int) -> None:
        """Prepare the pass of sample `at` of those that are formed together."""
        self.at = at
        if at == 0:
            self.found = {}  # releases the weights of the samples before
            known = self.dtypes or {}
            layers = [layer for layer in self.layers if layer.flipout in known]
            self.found = {layer.flipout: _formed(layer, session, known[layer.flipout]) for layer in layers}

    def end(self, session: Pass) -> None:
        """Learn from the first pass which layers have formed their weights, and in which dtype."""
        if self.dtypes is not None or session.formed is None:
            return
        found: dict[Any, set[torch.dtype]] = {}
        formed: Any = session.formed  # its keys are those of `Perturbations.formed`
        for key, groups, dtype in formed:
            found.setdefault((key, groups), set()).add(dtype)
        self.dtypes = {}
        for layer in self.layers:
            _, keys = held_pass(layer)
            dtypes = [found.get((keys[name], sign_groups(layer, name)), set()) for name in layer.flipout.distributions]
            if dtypes and len(dtypes[0]) == 1 and all(other == dtypes[0] for other in dtypes):
                self.dtypes[layer.flipout] = next(iter(dtypes[0]))
        self.begin(session, 0)


def _formed(layer: Perturbed, session: Pass, dtype: torch.dtype) -> tuple[_Product, list[_Weights]]:
    """Return the product of a plain layer, and the weights for each sample that is formed together with this pass."""
    _, keys = held_pass(layer)
    here = session.to(parameter_of(layer, "weight").device)
    noise = Perturbations(layer, here, keys, dtype, layer.flipout.scheme)
    assert session.formed_for is not None
    _, count = session.formed_for

    def each(name: str) -> Iterable[Any]:
        if name in noise:
            return noise.formed_together(name).unbind(0)
        plain = parameter_of(layer, name)
        return [None if plain is None else plain.to(dtype)] * count

    plain: Any = layer
    product = F.linear if isinstance(layer, Linear) else plain._conv_forward
    return product, list(zip(each("weight"), each("bias"), strict=True))
