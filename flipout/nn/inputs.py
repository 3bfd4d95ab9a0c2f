"""The input of a perturbed layer: its rows, its dtype, and refusals that name the layer."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..backend import autocasts
from ..errors import InvalidInput
from .layers import label_of

if TYPE_CHECKING:
    from .base import Perturbed


def not_a_tensor(layer: "Perturbed", value: Any, name: str = "input") -> InvalidInput:
    """Return the refusal of an array, a list or the like where a tensor is expected."""
    return InvalidInput(f"{label_of(layer)}: {name} of {type(value)}; expected a tensor: torch.as_tensor({name}).")


def rows_first(layer: "Perturbed", x: Tensor, feature_dims: int) -> tuple[Tensor, int | None]:
    """Move the example's dimension to the front.

    Args:
        layer: The layer that is called. Its plan knows the example's dimension.
        x: The input, (…, *features).
        feature_dims: How many dimensions at the end are features.

    Returns:
        The input with rows first, and the dimension that the rows had; None for a single example without one.
    """
    plan = layer.flipout
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


def rows_back(y: Tensor, batch_dim: int | None) -> Tensor:
    """Undo `rows_first`: (N, …) gets its rows back into dimension `batch_dim`.

    Dimension 0 returns y itself, since `fully_shard` warns of modules that return views.
    """
    if batch_dim is None:
        return y.squeeze(0)
    return y.movedim(0, batch_dim) if batch_dim else y


def compute_dtype(layer: "Perturbed", x: Tensor, weight: Tensor, name: str = "input") -> torch.dtype:
    """Return the dtype to compute in: autocast's, or the dtype that input and weight, of any shape, share.

    Raises:
        InvalidInput: The input is not a tensor, or its dtype differs from the weight's.
    """
    if not isinstance(x, Tensor):
        raise not_a_tensor(layer, x, name)
    device_type = x.device.type
    if autocasts(device_type) and x.is_floating_point() and torch.float64 not in (x.dtype, weight.dtype):
        return torch.get_autocast_dtype(device_type)
    if x.dtype != weight.dtype:
        raise InvalidInput(
            f"{label_of(layer)}: {name} of dtype {x.dtype}; expected {weight.dtype}, the dtype of its Parameters. "
            f"Convert it, .to({weight.dtype})"
            + (f", or the layer, layer.to({x.dtype}), or use torch.autocast." if x.is_floating_point() else ".")
        )
    return x.dtype
