"""freeze(model): plain torch modules again."""

from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import nn

from .errors import InvalidArgument
from .nn.contexts import held_draw, perturbed_layers, weights_of
from .nn.fast_path import allow_fast_path
from .nn.structure import conversions
from .shards import GATHER, refuse_shards
from .whole import whole

M = TypeVar("M", bound=nn.Module)


def freeze(model: M, *, at: str = "mean", example: int | None = None) -> M:
    """Plain torch modules again, in place: at the mean, or, inside of `hold`, at what one `example` sees.

    A copy of a model that is held holds no draw: copy first, then `with hold(copy, seed=…): freeze(copy, at="draw")`.
    """
    if at not in ("mean", "draw"):
        raise InvalidArgument(f"freeze(at={at!r}): expected 'mean' or 'draw'.")
    if at == "mean" and example is not None:
        raise InvalidArgument(f"freeze(example={example!r}): the mean is that of all; give at='draw', inside of hold.")
    example = whole("example", 0 if example is None else example, 0, of="freeze", means="the index of an example")
    layers = perturbed_layers(model)
    refuse_shards(model, "freeze", GATHER)
    drawn: list[tuple[nn.Parameter, torch.Tensor]] = []
    if at == "draw":
        with torch.no_grad():
            for layer in layers.values():
                draw, keys = held_draw(layer)
                if draw.examples is not None and example >= draw.examples:
                    raise InvalidArgument(
                        f"freeze(example={example}): the held draw has {draw.examples} examples, 0 to "
                        f"{draw.examples - 1}."
                    )
                seen = weights_of(layer, draw, keys, example)
                drawn += [(attrgetter(name)(layer), weight.squeeze(0)) for name, weight in seen.items()]
    conversions.count += 1
    for parameter, weight in drawn:
        parameter.data.copy_(weight)
    for root in {root for layer in layers.values() for root, _ in layer.plan.roots}:
        for module in model.modules():
            root.detach(module)
    for module in model.modules():
        allow_fast_path(module)
    for layer in layers.values():
        for name in layer.plan.learned:
            owner, _, _ = name.rpartition(".")
            for own in layer.names_beside(name):
                delattr(layer.get_submodule(owner), own.rpartition(".")[2])
        plain: Any = layer
        del plain.plan
        plain.__class__ = getattr(layer, "plain_type", layer.torch_type)
    return model
