"""Checks of the targets that a likelihood is given."""

import torch
from torch import Tensor

from ..draws.bits import is_transformed
from ..errors import InvalidInput


def check_target_shape(
    kind: str, output: Tensor, target: Tensor, expected: torch.Size, what: str, fix: str = ""
) -> None:
    """Refuse a target that would have to be broadcast to the output."""
    if target.shape != expected:
        raise InvalidInput(
            f"{kind}: output of shape {tuple(output.shape)} and target of shape {tuple(target.shape)}; this output, "
            f"with {what}, needs targets of shape {tuple(expected)}. "
            f"{fix or 'Reshape one of them'}: nothing is broadcast."
        )


def check_whole(kind: str, target: Tensor) -> None:
    """Refuse targets that are no whole numbers. Only on a CPU, as `check_range`."""
    if target.device.type != "cpu" or is_transformed() or not target.is_floating_point():
        return
    broken = target[target != target.floor()]
    if broken.numel():
        raise InvalidInput(
            f"{kind}: a target of {broken[0].item():g}; expected counts, which are whole numbers. Use Gaussian noise, "
            "or count in a smaller unit."
        )


def check_range(kind: str, target: Tensor, low: float, high: float, ignored: int | None = None) -> None:
    """Refuse targets out of range. Only on a CPU: on a GPU, reading them would make the host wait."""
    if target.device.type != "cpu" or is_transformed():
        return
    counted = target if ignored is None else target[target != ignored]
    if counted.numel():
        smallest, largest = counted.min().item(), counted.max().item()
        if not (low <= smallest and largest <= high):
            expected = "counts ≥ 0"
            if high != float("inf"):
                expected = f"them from {low} to {high}. Number classes from 0; scale others into that range"
            raise InvalidInput(f"{kind}: targets from {smallest} to {largest}; expected {expected}.")
