"""The input of a perturbed layer: its rows, its dtype, and refusals that name the layer."""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..backend import is_autocast_on
from ..errors import InvalidInput
from .layers import label_of
from .layouts import Layout
from .row_count import batch_rows, single_example
from .row_count import check_batch as check_batch

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


def rows_first(layer: "Perturbed", x: Tensor, feature_dims: int, layout: Layout | None = None) -> tuple[Tensor, Place]:
    """Move the example's dimension to the front.

    Args:
        layer: The layer that is called. Its plan knows the example's dimension.
        x: The input, (…, *features).
        feature_dims: How many dimensions at the end are features.
        layout: Where the examples are, if it is not the layer's input but the operand of a read.

    Returns:
        The input with rows first, and where the rows were, for `rows_back`; None for a single example without a
        dimension of its own.

    Raises:
        InvalidInput: The input has too few dimensions.

    Example:
        >>> rows, place = flipout.nn.rows_first(self, x, feature_dims=1)
        >>> return flipout.nn.rows_back(noise.product(op, rows, "weight"), place)
    """
    plan = layer.flipout
    layout = plan.layout if layout is None else layout
    if layout is not None and x.dim() - feature_dims > layout.dim:
        dim = layout.dim
        x = x.movedim(dim, 0) if dim else x
        if layout.order != "position-major":
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
        return single_example(layer, x), None
    raise InvalidInput(
        f"{label_of(layer)}: input of shape {tuple(x.shape)} has no dimension {dim} for the example before its "
        f"{feature_dims} feature dimension(s). Give another batch_dim to perturb(…, batch_dim=…), for this layer alone "
        f"with batch_dim={{'{plan.label or '*'}': 0}}."
    )


def rows_back(y: Tensor, place: Place) -> Tensor:
    """Undo `rows_first`: (N, …) gets its rows back to their place.

    Dimension 0 returns y itself, since `fully_shard` warns of modules that return views. Any other result is made
    contiguous, as that of the plain layer is: models call `.view` on it.

    Args:
        y: The output, rows first, (N, …).
        place: The second value of `rows_first`.

    Returns:
        The output in the form of the input.

    Example:
        >>> rows, place = flipout.nn.rows_first(self, x, feature_dims=1)
        >>> return flipout.nn.rows_back(noise.product(op, rows, "weight"), place)
    """
    if place is None:
        return y.squeeze(0)
    if isinstance(place, PositionMajor):
        y, place = y.unflatten(0, (-1, place.positions)).transpose(0, 1).flatten(0, 1), place.dim
    return y.movedim(0, place).contiguous() if place else y


def compute_dtype(layer: "Perturbed", x: Tensor, weight: Tensor, name: str = "input") -> torch.dtype:
    """Return the dtype to compute in: autocast's, or the dtype that input and weight, of any shape, share.

    Args:
        layer: The layer, which an error names.
        x: The input.
        weight: The weight.
        name: What an error calls the input.

    Returns:
        The dtype for `perturbations`.

    Raises:
        InvalidInput: The input is not a tensor, or its dtype differs from the weight's.

    Example:
        >>> dtype = flipout.nn.compute_dtype(self, x, self.weight)
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
