"""The input of a perturbed layer: its rows, its dtype, and refusals that name the layer."""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..backend import is_autocast_on
from ..errors import ExampleCount, InvalidInput
from .layers import label_of
from .layouts import batch_sizes

if TYPE_CHECKING:
    from .base import Perturbed


def not_a_tensor(layer: "Perturbed", value: Any, name: str = "input") -> InvalidInput:
    """Return the refusal of an array, a list or the like where a tensor is expected."""
    return InvalidInput(f"{label_of(layer)}: {name} of {type(value)}; expected a tensor: torch.as_tensor({name}).")


class PositionMajor(NamedTuple):
    """How an input had its rows: folded into one dimension, all examples of a position after each other."""

    dim: int
    positions: int


Place = int | PositionMajor | None


def rows_first(layer: "Perturbed", x: Tensor, feature_dims: int) -> tuple[Tensor, Place]:
    """Move the example's dimension to the front.

    Args:
        layer: The layer that is called. Its plan knows the example's dimension.
        x: The input, (…, *features).
        feature_dims: How many dimensions at the end are features.

    Returns:
        The input with rows first, and where the rows were, for `rows_back`; None for a single example without a
        dimension of its own.
    """
    plan = layer.flipout
    if plan.layout is not None and x.dim() - feature_dims > plan.layout.dim:
        dim = plan.layout.dim
        x = x.movedim(dim, 0) if dim else x
        if plan.layout.order != "position-major":
            return x, dim
        examples = batch_rows(layer, x.shape[0])
        turned = x.unflatten(0, (-1, examples)).transpose(0, 1)
        return turned.flatten(0, 1), PositionMajor(dim, turned.shape[1])
    dim = plan.inherited_batch_dim if plan.batch_dim is None else plan.batch_dim
    outer = x.dim() - feature_dims
    is_single = outer == 1 and plan.batch_dim is None and plan.takes_sequences
    if outer > dim and not is_single:
        return x.movedim(dim, 0) if dim else x, dim
    if is_single or outer == 0 or (outer == dim and plan.batch_dim is None):
        return x.unsqueeze(0), None
    raise InvalidInput(
        f"{label_of(layer)}: input of shape {tuple(x.shape)} has no dimension {dim} for the example before its "
        f"{feature_dims} feature dimension(s). Give another batch_dim to perturb(…, batch_dim=…), for this layer alone "
        f"with batch_dim={{'{plan.label or '*'}': 0}}."
    )


def rows_back(y: Tensor, place: Place) -> Tensor:
    """Undo `rows_first`: (N, …) gets its rows back to their place.

    Dimension 0 returns y itself, since `fully_shard` warns of modules that return views.
    """
    if place is None:
        return y.squeeze(0)
    if isinstance(place, PositionMajor):
        y, place = y.unflatten(0, (-1, place.positions)).transpose(0, 1).flatten(0, 1), place.dim
    return y.movedim(0, place) if place else y


def batch_rows(layer: "Perturbed", rows: int) -> int:
    """Return the number of rows of the root's batch, which the layer's `rows` are folded from.

    Raises:
        ExampleCount: The layer is called outside its root, or its rows are not a multiple of the batch's.
    """
    learned = next((root.thread.running.rows for root, _ in layer.flipout.roots if root.thread.running.rows), None)
    if learned is None:
        raise ExampleCount(
            f"{label_of(layer)}: its examples are folded into dimension {layer.flipout.layout.dim}, "  # pyright: ignore[reportOptionalMemberAccess]
            "as example_inputs have shown, and how many there are is known only inside a call of the whole model. Call "
            "the model that was given to perturb."
        )
    if rows % learned:
        raise ExampleCount(
            f"{label_of(layer)}: {rows} rows do not split into the {learned} examples of the model's input, as they "
            "did for the example_inputs of perturb. Give example_inputs that show how this input is laid out."
        )
    return learned


def check_batch(layer: "Perturbed", rows: int) -> None:
    """Refuse to take `rows` for the number of examples if no input of the root has as many in dimension 0.

    Layers that were told their layout, by `batch_dim` or by `batch_first`, are believed. So is a single row, which may
    be an example without a dimension of its own.

    Raises:
        ExampleCount: Tokens, windows or time steps are probably folded into the layer's rows.
    """
    plan = layer.flipout
    if (
        rows == 1
        or plan.batch_dim is not None
        or plan.inherited_batch_dim
        or plan.takes_sequences
        or layer._declared.fixed_layout
    ):
        return
    for root, _ in plan.roots:
        running = root.thread.running
        if running.session is not None and running.inputs is not None:
            args = running.inputs[0]
            if args and isinstance(args[0], Tensor) and args[0].shape[:1] == (rows,):
                continue  # the usual case, without a walk through all inputs
            sizes = batch_sizes(running.inputs)
            if sizes and rows not in sizes:
                listed = " or ".join(map(str, sorted(sizes)))
                raise ExampleCount(
                    f"{label_of(layer)}: its input has {rows} rows, but the model was called with {listed} in "
                    "dimension 0. If tokens, windows or time steps were folded into the rows, show perturb a batch, "
                    "perturb(model, …, example_inputs=batch), and it follows the fold; if each row is an example all "
                    f"the same, say so: perturb(model, …, batch_dim={{'{plan.label or '*'}': 0}})."
                )


def compute_dtype(layer: "Perturbed", x: Tensor, weight: Tensor, name: str = "input") -> torch.dtype:
    """Return the dtype to compute in: autocast's, or the dtype that input and weight, of any shape, share.

    Raises:
        InvalidInput: The input is not a tensor, or its dtype differs from the weight's.
    """
    if not isinstance(x, Tensor):
        raise not_a_tensor(layer, x, name)
    device_type = x.device.type
    if is_autocast_on(device_type) and x.is_floating_point() and torch.float64 not in (x.dtype, weight.dtype):
        return torch.get_autocast_dtype(device_type)
    if x.dtype != weight.dtype:
        raise InvalidInput(
            f"{label_of(layer)}: {name} of dtype {x.dtype}; expected {weight.dtype}, the dtype of its Parameters. "
            f"Convert it, .to({weight.dtype})"
            + (f", or the layer, layer.to({x.dtype}), or use torch.autocast." if x.is_floating_point() else ".")
        )
    return x.dtype
