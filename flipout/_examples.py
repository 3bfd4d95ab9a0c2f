"""Find out from a batch where each layer of a converted model has its examples, and tell the layers."""

import warnings
from typing import Any

from torch import nn

from ._arguments import whole_number
from .errors import InvalidArgument, LayoutUnknown, Unsupported
from .nn.base import Perturbed
from .nn.derived import ByReads
from .nn.layers import label_of
from .nn.layouts import Layout, learn_layouts
from .nn.rooting import roots_on


def find_examples(model: nn.Module, layers: dict[str, Perturbed], example_inputs: Any, batch_dim: Any) -> None:
    """Show the model a batch, and remember where each layer's input has its examples.

    Args:
        model: The converted model. It is run a few times, plain and in eval mode.
        layers: Its perturbed layers, by label.
        example_inputs: A tensor, a tuple of arguments or a dict of keyword arguments, with two or more examples.
        batch_dim: The example's dimension in the inputs, if it is a number.

    Raises:
        InvalidArgument: A layer was told another dimension than the batch shows.
        Unsupported: A layer that has a fixed layout sees its examples in another one.
    """
    dim = whole_number("batch_dim", batch_dim, 0) if isinstance(batch_dim, int) else 0
    # What a foreign module multiplies inside need not be laid out as its input is.
    layers = {label: layer for label, layer in layers.items() if not isinstance(layer, ByReads)}
    learned = learn_layouts(model, layers, example_inputs, dim)
    for label, layout in learned.layouts.items():
        _check(layers[label], layout)
    for label, layout in learned.layouts.items():
        layers[label].flipout.layout = layout
    for root in roots_on(model):
        root.batch = learned.batch
    counting = {label: why for label, why in learned.unknown.items() if layers[label].flipout.scheme.name != "shared"}
    if counting:
        listed = "; ".join(f"{label or 'the model'}: {why}" for label, why in list(counting.items())[:5])
        more = f"; and {len(counting) - 5} more" if len(counting) > 5 else ""
        warnings.warn(
            f"perturb(…, example_inputs=…): the layout of {len(counting)} perturbed layer(s) is unknown "
            f"({listed}{more}). They are taken to have the example in dimension 0, and a call with another number of "
            f"rows is refused. Leave "
            'them out with `where`, or give them scheme="shared", under which nobody counts.',
            LayoutUnknown,
            stacklevel=4,
        )


def _check(layer: Perturbed, layout: Layout) -> None:
    """Refuse a layout that contradicts what the layer was told, or that it cannot follow."""
    plan, declared = layer.flipout, layer._declared
    if plan.batch_dim is not None and plan.batch_dim != layout.dim:
        raise InvalidArgument(
            f"{label_of(layer)}: batch_dim={plan.batch_dim} given, but the example_inputs show its examples in "
            f"{layout}. Leave batch_dim out."
        )
    if not declared.fixed_layout:
        return
    expected = 0
    if hasattr(layer, "batch_first"):
        expected = 0 if layer.batch_first else 1
    if layout.dim != expected:
        raise Unsupported(
            f"{label_of(layer)}: its layout is {declared.fixed_layout}, with the example in dimension {expected}, but "
            f"the example_inputs show the examples in {layout}. Turn the input, or leave the layer out with `where`."
        )
    if layout.order == "position-major":
        raise Unsupported(
            f"{label_of(layer)}: time steps or windows are folded in front of the examples in dimension {layout.dim}; "
            "this layer can follow only a fold that keeps the rows of an example together. Fold the other way round, "
            "or leave the layer out with `where`."
        )
