"""A `forward` that was set on a layer itself, as accelerate's hooks do. It would keep calling the plain class."""

from types import MethodType
from typing import Any

from torch import nn

from ..errors import Unsupported


def check_forward(layer: nn.Module, layer_type: type[nn.Module], label: str) -> None:
    """Refuse a layer whose own `forward` would hide that of its perturbed class, and so its noise."""
    set_forward = layer.__dict__.get("forward")
    if set_forward is None or layer_type.forward is type(layer).forward:
        return
    if not any(_is_plain(layer, layer.__dict__.get(name)) for name in ("forward", "_old_forward")):
        raise Unsupported(
            f"{label}: its forward was replaced on the layer itself, {label}.forward = {set_forward!r:.80}, so it "
            "would have no noise. Perturb first, then replace or compile it; or leave the layer out with `where`."
        )


def rebind_forward(layer: nn.Module, before: type[nn.Module]) -> None:
    """Have accelerate's hooks call the `forward` of the layer's present class instead of that of the class before."""
    for name in ("forward", "_old_forward"):
        set_forward = layer.__dict__.get(name)
        if _is_plain(layer, set_forward, before):
            layer.__dict__[name] = MethodType(type(layer).forward, layer)


def _is_plain(layer: nn.Module, method: Any, kind: type[nn.Module] | None = None) -> bool:
    """Return True if a method is the `forward` of the layer's class, bound to the layer."""
    function = getattr(method, "__func__", None)
    return function is not None and function is (kind or type(layer)).forward and method.__self__ is layer
