"""What may be measured. A model, data or a loss whose gradient variance would mean something else is refused."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InvalidArgument
from ..nn.contexts import hold

Loss = Callable[[Any, Tensor], Tensor]
Batches = tuple[Tensor, Tensor] | Callable[[int, torch.Generator], tuple[Tensor, Tensor]]


def check_frozen(model: nn.Module) -> None:
    """Refuse a model whose normalisation layers are in training mode."""
    for name, module in model.named_modules():
        if module.training and getattr(module, "track_running_stats", False):
            raise InvalidArgument(
                f"{name} ({type(module).__name__}) is in training mode: each measured batch would change its running "
                "statistics, and its examples would see each other. Call model.eval() first; the weights are perturbed "
                "in eval mode too."
            )


def check_data(data: Any) -> None:
    """Refuse anything but a function or two tensors of one length."""
    if callable(data):
        return
    pair = tuple(data) if isinstance(data, (tuple, list)) else ()
    if len(pair) != 2 or not all(isinstance(part, Tensor) for part in pair) or len(pair[0]) != len(pair[1]):
        received = [tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in pair]
        raise InvalidArgument(
            f"data: {received or type(data).__name__} given; expected (inputs, targets), two tensors of one length, or "
            "a function (size, generator) → (inputs, targets)."
        )


def check_loss(model: nn.Module, loss: Loss, data: Batches, device: torch.device) -> None:
    """Refuse a loss that is not a mean: a batch concatenated with itself must have the loss of the batch."""
    x, y = data(2, torch.Generator()) if callable(data) else (part[:2] for part in data)
    x, y = x.to(device), y.to(device)
    with torch.no_grad(), hold(model, seed=0):
        output = model(x)
    if not isinstance(output, Tensor):
        return
    with torch.no_grad():
        single, doubled = loss(output, y), loss(torch.cat((output, output)), torch.cat((y, y)))
    if single.dim() or not torch.isfinite(single) or not torch.allclose(single, doubled, rtol=1e-3):
        found = [f"{value.item():.4g}" if value.dim() == 0 else tuple(value.shape) for value in (single, doubled)]
        raise InvalidArgument(
            f"loss: {found[0]} for a batch and {found[1]} for the same batch twice over; expected a finite number, the "
            "mean over the examples (reduction='mean')."
        )
