"""Find out from a batch where each layer of a model has its examples, and tell the layers."""

import warnings
from typing import Any, NamedTuple

from torch import nn

from .errors import InvalidArgument, LayoutUnknown, Unsupported
from .nn.base import Perturbed
from .nn.derived import ByReads
from .nn.layouts import Layout, Learned, learn_layouts
from .nn.rooting import roots_on


class Candidate(NamedTuple):
    """A layer that is perturbed, or will be."""

    layer: nn.Module
    layer_type: type[Perturbed]
    batch_dim: int | None  # the example's dimension that the user asked for


def find_examples(model: nn.Module, candidates: dict[str, Candidate], example_inputs: Any, dim: int) -> Learned:
    """Show the model a batch, and return where each layer's input has its examples.

    Args:
        model: The model, before its conversion. It is run a few times, plain and in eval mode.
        candidates: The layers that are perturbed or will be, by label.
        example_inputs: A tensor, a tuple of arguments or a dict of keyword arguments, with two or more examples.
        dim: The example's dimension in these inputs.

    Raises:
        InvalidArgument: A layer was told another dimension than the batch shows.
        Unsupported: A layer that has a fixed layout sees its examples in another one.
    """
    # What a foreign module multiplies inside need not be laid out as its input is.
    shown = {label: c for label, c in candidates.items() if not issubclass(c.layer_type, ByReads)}
    learned = learn_layouts(model, {label: candidate.layer for label, candidate in shown.items()}, example_inputs, dim)
    for label, layout in learned.layouts.items():
        _check(f"{label or 'The model'} ({type(shown[label].layer).__name__})", shown[label], layout)
    return learned


def tell_layers(model: nn.Module, layers: dict[str, Perturbed], learned: Learned) -> None:
    """Give the perturbed layers what a batch has shown, and name those whose layout stayed unknown."""
    for label, layout in learned.layouts.items():
        layers[label].flipout.layout = layout
    for root in roots_on(model):
        root.batch = learned.batch
    counting = {label: why for label, why in learned.unknown.items() if not layers[label].flipout.scheme.is_shared}
    if counting:
        listed = "; ".join(f"{label or 'the model'}: {why}" for label, why in list(counting.items())[:5])
        more = f"; and {len(counting) - 5} more" if len(counting) > 5 else ""
        warnings.warn(
            f"perturb(…, example_inputs=…): the layout of {len(counting)} perturbed layer(s) is unknown "
            f"({listed}{more}). They are taken to have the example in dimension 0, and a call with another number of "
            'rows is refused. Leave them out with `where`, or give them scheme="shared", under which nobody counts.',
            LayoutUnknown,
            stacklevel=3,
        )


def _check(label: str, candidate: Candidate, layout: Layout) -> None:
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
