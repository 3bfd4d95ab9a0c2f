"""Turn a perturbed model back into plain torch modules."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from ._arguments import whole_number
from ._shards import GATHER, refuse_shards
from .errors import InvalidArgument
from .nn.base import Perturbed
from .nn.companions import companion_names
from .nn.fast_path import allow_fast_path
from .nn.held_weights import held_pass, weights_of
from .nn.models import perturbed_layers
from .nn.structure import conversions
from .nn.wrapped_forward import rebind_forward

M = TypeVar("M", bound=nn.Module)


def freeze(model: M, *, at: Literal["mean", "draw"] = "mean", example: int | None = None) -> M:
    """Turn a perturbed model back into plain torch modules, in place.

    To keep the perturbed model, freeze a copy. A copy made inside `hold` holds no draw, so copy first and hold the
    copy.

    Args:
        model: A model with perturbed layers.
        at: "mean" keeps the mean weights. "draw" takes the weights that one example sees in the draw held by `hold`.
        example: Index of that example, 0 if left out. Only with `at="draw"`.

    Returns:
        The same model object, without noise and without learned spreads.

    Raises:
        NotPerturbed: The model has no perturbed layers.
        InvalidArgument: `at` is unknown, or `example` is outside the held draw or was given with `at="mean"`.
        NoExampleWeights: `at="draw"` outside `hold`, or under a scheme without per-example weights.
        Unsupported: The model is sharded over ranks.

    Example:
        >>> network = copy.deepcopy(model)
        >>> with flipout.hold(network, seed=7):
        ...     flipout.freeze(network, at="draw", example=3)
    """
    if at not in ("mean", "draw"):
        raise InvalidArgument(f"freeze(at={at!r}): expected 'mean' or 'draw'.")
    if at == "mean" and example is not None:
        raise InvalidArgument(
            f"freeze(example={example!r}): the mean belongs to no single example; give at='draw', inside hold."
        )
    example = whole_number(
        "example", 0 if example is None else example, 0, of="freeze", means="the index of an example"
    )
    layers = perturbed_layers(model)
    refuse_shards(model, "freeze", GATHER)
    # Read all draws before anything changes, so that a refusal leaves the model as it was.
    drawn = _drawn_weights(layers.values(), example) if at == "draw" else []
    conversions.count += 1
    for parameter, weight in drawn:
        parameter.data.copy_(weight)
    for root in {root for layer in layers.values() for root, _ in layer.flipout.roots}:
        for module in model.modules():
            root.detach(module)
    for module in model.modules():
        allow_fast_path(module)
    for layer in layers.values():
        _make_plain(layer)
    return model


def _drawn_weights(layers: Iterable[Perturbed], example: int) -> list[tuple[nn.Parameter, Tensor]]:
    """Return each perturbed Parameter with the weights that the example sees in the held draw."""
    drawn: list[tuple[nn.Parameter, Tensor]] = []
    with torch.no_grad():
        for layer in layers:
            session, keys = held_pass(layer)
            if session.examples is not None and example >= session.examples:
                raise InvalidArgument(
                    f"freeze(example={example}): the held draw has {session.examples} examples, 0 to "
                    f"{session.examples - 1}."
                )
            weights = weights_of(layer, session, keys, example)
            drawn += [(attrgetter(name)(layer), weight.squeeze(0)) for name, weight in weights.items()]
    return drawn


def _make_plain(layer: Perturbed) -> None:
    """Remove learned spreads and priors, and give the layer its torch class back."""
    for name in layer.flipout.learned:
        owner, _, _ = name.rpartition(".")
        for learned in companion_names(layer, name):
            delattr(layer.get_submodule(owner), learned.rpartition(".")[2])
    plain: Any = layer
    noisy_type = type(layer)
    del plain.flipout
    plain.__class__ = layer._plain_type
    rebind_forward(plain, noisy_type)
