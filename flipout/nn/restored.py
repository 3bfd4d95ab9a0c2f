"""A model that is run to be looked at, and is afterwards as it was before."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

_MODULE = frozenset(nn.Module().__dict__)  # the attributes of every module: its Parameters, hooks and the like
_State = tuple[nn.Module, type, dict[str, tuple[Any, Any]]]  # and each attribute with a copy of its contents


@contextmanager
def restored_afterwards(model: nn.Module) -> Iterator[None]:
    """Put modes, buffers and other attributes of all modules back, such as tables that a forward pass keeps.

    A model that changes its own Parameters in place, or installs hooks, keeps its attributes too: they say that it has
    done so.
    """
    modes = {module: module.training for module in model.modules()}
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    states = [_state(module) for module in model.modules()]
    versions = [(parameter, _version(parameter)) for parameter in model.parameters()]
    hooks = _hooks(model)
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        if hooks == _hooks(model) and all(_version(parameter) == version for parameter, version in versions):
            for state in states:
                _put_back(*state)


def _hooks(model: nn.Module) -> list[int]:
    """Return how many forward hooks each module has: transformers installs some in the first call."""
    return [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]


def _version(parameter: nn.Parameter) -> int:
    return 0 if isinstance(parameter, UninitializedParameter) or parameter.is_inference() else parameter._version


def _state(module: nn.Module) -> _State:
    kept = {name: value for name, value in module.__dict__.items() if name not in _MODULE}
    return module, type(module), {name: (value, _contents(value)) for name, value in kept.items()}


def _contents(value: Any) -> Any:
    """Return a copy of a plain container; None for anything else."""
    return value.copy() if type(value) in (dict, list, set) else None


def _put_back(module: nn.Module, kind: type, before: dict[str, tuple[Any, Any]]) -> None:
    if type(module) is not kind:  # a lazy module has found its sizes
        return
    for name in [name for name in module.__dict__ if name not in _MODULE and name not in before]:
        del module.__dict__[name]
    for name, (value, contents) in before.items():
        module.__dict__[name] = value
        if isinstance(contents, list):
            value[:] = contents
        elif contents is not None:
            value.clear()
            value.update(contents)
