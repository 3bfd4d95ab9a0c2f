"""A look at the first noisy pass of a model: which perturbed Parameters it reads, and who reads them around the noise.

A handle reaches whoever reads an attribute of a layer. Code that kept the Parameter itself, or takes it from
`_parameters`, sees the mean without noise. While a root is looked at, every torch function passes through here.
"""

import sys
import warnings
from operator import attrgetter
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ..draws.bits import is_transformed
from ..errors import NeverRead, UnservedRead
from .handle import NoisyParameter, handles_in
from .layers import is_noisy_now, is_perturbed, parameter_of
from .reader import is_own_reader, reader
from .served import is_question, name_of


class Audit(TorchFunctionMode):
    """Watches one forward pass of a root's module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.training = module.training
        self.error = sys.exc_info()[1]
        self.parameters: dict[int, tuple[Any, str, str]] = {}  # id → the layer, its name there, its name in the model
        self.read: set[int] = set()
        for label, layer in module.named_modules():
            for name in layer.flipout.distributions if is_perturbed(layer) else ():
                found = layer, name, f"{label}.{name}".lstrip(".")
                self.parameters.setdefault(id(attrgetter(name)(layer)), found)

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        if NoisyParameter in types and not is_question(func):
            sources = (source for handle in handles_in([args, kwargs or {}]) for source in handle._sources)
            self.read.update(id(parameter_of(source.layer, source.name)) for source in sources)
        for value in (*args, *kwargs.values()) if kwargs else args:
            if id(value) in self.parameters:
                self._meet(id(value), func)
            elif type(value) in (list, tuple):
                for inside in value:
                    if id(inside) in self.parameters:
                        self._meet(id(inside), func)
        return func(*args, **(kwargs or {}))

    def _meet(self, key: int, func: Any) -> None:
        layer, _, label = self.parameters[key]
        if is_own_reader(layer):
            self.read.add(key)
        elif not is_question(func) and is_noisy_now(layer):
            raise UnservedRead(
                f"{label}: {name_of(func).strip('_')} at {reader()} reads this perturbed Parameter around its noise. "
                "It has the Parameter itself, kept from before or taken from _parameters or parameters(), and would "
                "see the mean. Read it as an attribute of its layer within forward, move the line out of the forward "
                f"pass, or leave the Parameter out: perturb(model, …, where=lambda name: name != {label!r} and …)."
            )

    def unread(self) -> set[str]:
        """Return the perturbed Parameters that the pass did not read, of layers that were to be noisy."""
        return {
            label for key, (layer, _, label) in self.parameters.items() if key not in self.read and is_noisy_now(layer)
        }

    def leave(self) -> bool:
        """Stop watching; return True if the pass ended without an error."""
        others = []
        while torch._C._len_torch_function_stack():
            mode = torch.overrides._pop_mode()
            if mode is self:
                break
            others.append(mode)
        for mode in reversed(others):
            torch.overrides._push_mode(mode)
        return sys.exc_info()[1] is self.error


def watch(module: nn.Module) -> Audit | None:
    """Watch the forward pass of a root's module that begins.

    None where that cannot be done: torch.compile would trace the watching in compiled parts, and under torch.func or
    FSDP other tensors stand in for the Parameters.
    """
    if is_transformed() or any(part._compiled_call_impl is not None for part in module.modules()):
        return None
    audit = Audit(module)
    if not all(isinstance(attrgetter(name)(layer), nn.Parameter) for layer, name, _ in audit.parameters.values()):
        return None
    audit.__enter__()
    return audit


def warn_of_unread(labels: list[str]) -> None:
    """Name the perturbed Parameters that a whole noisy pass did not read."""
    if labels:
        listed = ", ".join(labels[:8]) + (f", … ({len(labels)} in all)" if labels[8:] else "")
        warnings.warn(
            f"Perturbed, but the first noisy pass did not read: {listed}. Layers that are skipped now and then, or "
            "experts that no token chose, are read later. Otherwise leave them out of `where`: their KL is counted in "
            "flipout.bayes.kl all the same.",
            NeverRead,
            stacklevel=2,
        )
