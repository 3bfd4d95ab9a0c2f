"""Audits the first noisy pass of a model: which perturbed Parameters it reads, and which code reads them without noise.

A handle reaches code that reads an attribute of a layer, and adds the noise. Code that kept the Parameter itself or a
view of it, in a list or as a buffer, or that takes it from `_parameters`, sees the mean without noise. During an audit
every torch function passes through here.
"""

import sys
import warnings
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .._reprs import first_few
from ..draws.bits import is_transformed
from ..errors import NeverRead, UnservedRead
from .handle import NoisyParameter, handles_in
from .layers import is_noisy_now, is_perturbed, parameter_of
from .pairing import name_of
from .probe import storage_key
from .reader import caller, is_own_reader
from .served import is_question
from .switches import idle_parameters


class Audit(TorchFunctionMode):
    """Watches one forward pass of a root's module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.training = module.training
        self.error = sys.exc_info()[1]
        self.idle = idle_parameters(module.modules())
        self.parameters: dict[int, tuple[Any, str, str]] = {}  # id → the layer, its name there, its name in the model
        self.read: set[int] = set()
        self.kept: list[Any] = []  # keeps the Parameters alive, since the id of a freed one may be used again
        for label, layer in module.named_modules():
            for name in layer.flipout.distributions if is_perturbed(layer) else ():
                found = layer, name, f"{label}.{name}".lstrip(".")
                self.kept.append(attrgetter(name)(layer))
                self.parameters.setdefault(id(self.kept[-1]), found)
        self.memory: dict[int, list[tuple[int, int, int]]] = {}  # storage → the first byte, the end and the id of each
        for parameter in self.kept:
            start = parameter.data_ptr()
            place = start, start + parameter.nbytes, id(parameter)
            self.memory.setdefault(storage_key(parameter), []).append(place)
        self.memory.pop(0, None)

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        if NoisyParameter in types and not is_question(func):
            sources = (source for handle in handles_in([args, kwargs or {}]) for source in handle._sources)
            self.read.update(id(parameter_of(source.layer, source.name)) for source in sources)
        for value in (*args, *kwargs.values()) if kwargs else args:
            for inside in value if type(value) in (list, tuple) else (value,):
                key = self._source(inside, func)
                if key is not None:
                    self._meet(key, func)
        return func(*args, **(kwargs or {}))

    def _source(self, value: Any, func: Any) -> int | None:
        """Return the id of the Parameter that an argument is, or whose numbers are read through a view."""
        if id(value) in self.parameters:
            return id(value)
        if not isinstance(value, Tensor) or isinstance(value, (nn.Parameter, NoisyParameter)) or is_question(func):
            return None
        places = self.memory.get(storage_key(value), ()) if self.memory else ()
        # Weights of a recurrent layer may lie in one storage, beside others that are not perturbed.
        return next((key for start, end, key in places if start <= value.data_ptr() < end), None)

    def _meet(self, key: int, func: Any) -> None:
        layer, _, label = self.parameters[key]
        if is_own_reader(layer):
            self.read.add(key)
        elif not is_question(func) and is_noisy_now(layer):
            raise UnservedRead(
                f"{label}: {name_of(func).strip('_')} at {caller()} reads this perturbed Parameter without noise. "
                "It has the Parameter itself or a view of it, kept from before or taken from _parameters or "
                "parameters(), and would see the mean. Read it as an attribute of its layer within forward, move the "
                "line out of the forward pass, or leave the Parameter out: "
                f"perturb(model, …, where=lambda name: name != {label!r} and …)."
            )

    def unread(self) -> set[str]:
        """Return the perturbed Parameters that the pass should have read and did not."""
        return {
            label
            for key, (layer, name, label) in self.parameters.items()
            if key not in self.read and is_noisy_now(layer) and (layer, name) not in self.idle
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
    """Watch the forward pass of a root's module, which is about to begin.

    Return None where that is impossible: torch.compile would trace the audit, and torch.func, FSDP and accelerate's
    offloading replace the Parameters by other tensors.
    """
    if is_transformed() or any(_is_compiled(part) for part in module.modules()):
        return None
    audit = Audit(module)
    if not all(isinstance(parameter, nn.Parameter) and not parameter.is_meta for parameter in audit.kept):
        return None
    audit.__enter__()
    return audit


def _is_compiled(module: nn.Module) -> bool:
    """Return True after `module.compile()`, or `module.forward = torch.compile(module.forward)`."""
    replaced = module.__dict__.get("forward")
    return module._compiled_call_impl is not None or hasattr(replaced, "_torchdynamo_orig_callable")


def warn_of_unread(labels: list[str]) -> None:
    """Warn of the perturbed Parameters that a complete noisy pass did not read."""
    if labels:
        warnings.warn(
            f"Perturbed, but the first noisy pass did not read: {first_few(labels)}. Layers that are skipped now "
            "and then, or experts that no token chose, are read later. Otherwise leave them out of `where`: their KL "
            "is counted in flipout.bayes.kl all the same.",
            NeverRead,
            stacklevel=2,
        )
