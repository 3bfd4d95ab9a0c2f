"""Find out from a batch where each layer of a model has its examples, and tell the layers."""

import warnings
from collections import Counter, defaultdict
from operator import attrgetter
from typing import Any, NamedTuple

from torch import nn

from ._reprs import first_few
from .errors import InvalidArgument, LayoutUnknown, Unsupported
from .nn.base import Perturbed
from .nn.derived import ByReads
from .nn.layouts import CONSTANT, NOT_THE_BATCH, UNSEEN, Layout, Learned, learn_layouts
from .nn.probe import Readable
from .nn.rooting import roots_on

UNREAD = "no read of its Parameters was seen"
_SHOWN = 40  # names that a warning lists for one reason


class ShownLayer(NamedTuple):
    """A layer that is perturbed, or will be."""

    layer: nn.Module
    layer_type: type[Perturbed]
    batch_dim: int | None  # the example's dimension that the user asked for
    parameters: list[str]  # the names of those that are perturbed, or will be


def find_examples(model: nn.Module, candidates: dict[str, ShownLayer], example_inputs: Any, dim: int | None) -> Learned:
    """Show the model a batch, and return where each layer's input has its examples.

    Args:
        model: The model, before its conversion. It is run a few times, plain and in eval mode.
        candidates: The layers that are perturbed or will be, by label.
        example_inputs: A tensor, a tuple of arguments or a dict of keyword arguments, with two or more examples.
        dim: The example's dimension in these inputs, if the user has told it.

    Raises:
        InvalidArgument: A layer was told another dimension than the batch shows.
        Unsupported: A layer that has a fixed layout sees its examples in another one.
    """
    readable = defaultdict[int, Readable](Readable)
    for label, candidate in candidates.items():
        for name in candidate.parameters:
            known = readable[id(attrgetter(name)(candidate.layer))]
            known.users.append((label, name))
            if candidate.layer_type._declared.reads_itself:
                known.own_readers.append(candidate.layer)
    # What a foreign module multiplies inside need not be laid out as its input is.
    shown = {label: c for label, c in candidates.items() if not issubclass(c.layer_type, ByReads)}
    layers = {label: candidate.layer for label, candidate in shown.items()}
    learned = learn_layouts(model, layers, example_inputs, dim, readable)
    for label, layout in learned.layouts.items():
        _check(f"{label or 'The model'} ({type(shown[label].layer).__name__})", shown[label], layout)
    return learned


def tell_layers(model: nn.Module, layers: dict[str, Perturbed], learned: Learned) -> None:
    """Give the perturbed layers what a batch has shown, and name those whose layout stayed unknown."""
    users = Counter(id(p) for layer in layers.values() for p in _parameters(layer))
    unknown = dict(learned.unknown)
    for label, layer in layers.items():
        plan = layer.flipout
        plan.layout, plan.unknown, plan.reads = learned.layouts.get(label), "", learned.reads.get(label, {})
        shown = {layout for layout in plan.reads.values() if isinstance(layout, Layout)}
        if not (layer._declared.reads_itself or isinstance(layer, ByReads)) and len(shown) == 1:
            # A forward written elsewhere may fold its input before the weight is read.
            plan.layout = shown.pop()
            unknown.pop(label, None)
        if label not in unknown and plan.layout is None and not plan.reads:
            unknown[label] = UNREAD
        elif label in unknown and plan.reads and unknown[label] == UNSEEN:
            del unknown[label]  # code outside the layer reads its Parameters
        elif unknown.get(label, "").startswith(NOT_THE_BATCH):
            plan.unknown = unknown[label]
        for site, layout in plan.reads.items():
            if isinstance(layout, str) and layout != CONSTANT:
                unknown[f"{label}.{site.name}".lstrip(".")] = f"at {site.line} {layout}"
    for root in roots_on(model):
        root.batch = learned.batch
    _warn_of_unknown(
        {
            label: why
            for label, why in unknown.items()
            if not (label in layers and layers[label].flipout.scheme.is_shared)
            # Another name of tied weights need not be called: BART's `shared` is not.
            and not (why in (UNSEEN, UNREAD) and all(users[id(p)] > 1 for p in _parameters(layers[label])))
        }
    )


def _warn_of_unknown(unknown: dict[str, str]) -> None:
    """Name the layers and Parameters whose layout stayed unknown, those that will be refused first."""
    if not unknown:
        return
    by_reason: dict[str, list[str]] = {}
    for label, why in unknown.items():
        by_reason.setdefault(why, []).append(label or "the model")
    refused = sorted(by_reason, key=lambda why: not why.startswith(NOT_THE_BATCH))
    listed = "; ".join(f"{first_few(by_reason[why], _SHOWN)}: {why}" for why in refused)
    warnings.warn(
        f"perturb(…, example_inputs=…): the layout of {len(unknown)} perturbed layer(s) or Parameter(s) is unknown "
        f"({listed}). Where it is known that dimension 0 is not the examples, a call is refused. The others are taken "
        "to have the example in dimension 0, and a call with another number of rows is refused. Leave them out with "
        '`where`, or give them scheme="shared", which needs no number of examples.',
        LayoutUnknown,
        stacklevel=4,
    )


def _parameters(layer: Perturbed) -> list[Any]:
    return [attrgetter(name)(layer) for name in layer.flipout.distributions]


def _check(label: str, candidate: ShownLayer, layout: Layout) -> None:
    """Refuse a layout that contradicts what the layer was told, or that it cannot follow."""
    layer, declared = candidate.layer, candidate.layer_type._declared
    if candidate.batch_dim is not None and candidate.batch_dim != layout.dim:
        raise InvalidArgument(
            f"{label}: batch_dim={candidate.batch_dim} given, but the example_inputs show its examples in {layout}. "
            "Leave batch_dim out."
        )
    if not declared.fixed_layout:
        return
    expected = 0
    if hasattr(layer, "batch_first"):
        expected = 0 if layer.batch_first else 1
    if layout.dim != expected:
        raise Unsupported(
            f"{label}: its layout is {declared.fixed_layout}, with the example in dimension {expected}, but "
            f"the example_inputs show the examples in {layout}. If the model's own inputs have them in dimension "
            f"{expected}, say so: perturb(…, example_inputs=…, batch_dim={expected}). Else turn the layer's input, or "
            "leave the layer out with `where`."
        )
    if layout.order == "position-major":
        raise Unsupported(
            f"{label}: time steps or windows are folded in front of the examples in dimension {layout.dim}; "
            "this layer can follow only a fold that keeps the rows of an example together. Fold the other way round, "
            "or leave the layer out with `where`."
        )
