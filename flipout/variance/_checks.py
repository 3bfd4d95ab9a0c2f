"""Checks of what is measured: refuse a model, data or a loss whose gradient variance would mean something else."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .._model_calls import ModelCall, ModelInputs, OutputSelector, model_call, select
from .._reprs import short_repr
from ..errors import InvalidArgument
from ..nn.contexts import hold

Loss = Callable[[Any, Tensor], Tensor]
Batches = tuple[ModelInputs, Tensor] | Callable[[int, torch.Generator], tuple[ModelInputs, Tensor]]


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
    """Refuse anything but a function, or inputs and targets of one length."""
    if callable(data):
        return
    pair = tuple(data) if isinstance(data, (tuple, list)) else ()
    tensors = batch_tensors(*pair) if len(pair) == 2 and isinstance(pair[1], Tensor) else []
    if len(tensors) < 2 or any(x.dim() == 0 or len(x) != len(tensors[-1]) for x in tensors):
        received = [tuple(x.shape) for x in tensors] or [type(part).__name__ for part in pair] or type(data).__name__
        raise InvalidArgument(
            f"data: {received} given; expected (inputs, targets), tensors of one length, where inputs may be a dict of "
            "keyword arguments or a tuple of arguments; or a function (size, generator) → (inputs, targets)."
        )


def batch_tensors(inputs: ModelInputs, targets: Tensor) -> list[Tensor]:
    """Return the tensors of a batch, the targets last."""
    return [*model_call(inputs).tensors(), targets]


def check_function(loss: Any) -> None:
    """Refuse a loss that is not a function, such as the name of a likelihood."""
    if not callable(loss):
        found = repr(loss) if isinstance(loss, str) else short_repr(type(loss))
        raise InvalidArgument(
            f"loss: {found} given; expected a function of the model's output and the targets that returns the mean "
            "loss of the batch, such as torch.nn.functional.cross_entropy. Of a likelihood: "
            "lambda output, y: -likelihood.log_prob(output, y).mean()."
        )


def check_loss(model: nn.Module, loss: Loss, call: ModelCall, y: Tensor, selector: OutputSelector | None) -> None:
    """Refuse a loss that is not a mean: a batch concatenated with itself must have the loss of the batch."""
    with torch.no_grad(), hold(model, seed=0):
        output = select(call(model), selector, of="measure")
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
