"""The published way to flip signs in Bayesian LoRA: for each token. No part of the library, only compared with it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import flipout


@contextmanager
def signs_per_token(model: nn.Module, *, base_per_row: bool = False) -> Iterator[None]:
    """Draw noise on A as BLoB's code does: one ΔA for the batch, and signs of the shape (rows, tokens, features).

    The model's own noise is off: put its perturbed layers into eval mode.

    Args:
        model: A model with posteriors on A of linear layers.
        base_per_row: Draw a ΔA for each row instead, so that rows are independent samples.
    """

    def add_noise(layer: nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
        x, rho = args[0], layer.get_parameter("weight_rho")
        rows = x.shape[:1] if base_per_row else ()
        delta = softplus(rho) * torch.randn(*rows, *rho.shape, dtype=rho.dtype, device=rho.device)
        into, out_of = (torch.randint(2, of.shape, device=of.device).to(of) * 2 - 1 for of in (x, output))
        return output + out_of * ((into * x) @ delta.mT)

    hooks = [layer.register_forward_hook(add_noise) for layer in posterior_layers(model)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def posterior_layers(model: nn.Module) -> list[flipout.nn.Linear]:
    """Return the layers of the adapters that have a posterior."""
    return [layer for layer in model.modules() if isinstance(layer, flipout.nn.Linear)]
