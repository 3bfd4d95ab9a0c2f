"""The update of the mean weights: W̄ + α / (N σ²) Σ_n F_n ΔW_n, with an optimiser in place of α."""

import math

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from .._capture import capture
from ..errors import NonFinite
from ..nn.contexts import hold
from ..nn.held_weights import weighted_sums
from ._masters import Masters
from ._seeds import seed_of
from ._settings import Settings


class WeightUpdate:
    """Steps an optimiser along Σ_n c_n ΔW_n / σ². No member's weights are formed."""

    def __init__(self, model: nn.Module, settings: Settings, std: Tensor, masters: Masters) -> None:
        self.model, self.settings = model, settings
        self.masters = masters  # what the optimiser steps
        self.std = std  # of the model's noise, on the device of its Parameters
        self.captured_gradients = capture(self._gradients)
        self.addresses: list[int] = []  # of the weights that the captured graph reads
        self.order: list[nn.Parameter] = []  # of the gradients

    @torch.no_grad()
    def step(
        self, coefficients: Tensor, generation: int, optimizer: torch.optim.Optimizer, schedule: LRScheduler | None
    ) -> float:
        """Make one step with the draws' coefficients c, (draws,), and return the norm of the change."""
        parameters: list[Tensor] = [*self.masters.stepped]
        self.masters.fill()
        self._set_gradients(coefficients, generation)
        gradients = [p.grad for p in parameters if p.grad is not None and p.numel()]
        if not bool(torch.stack(torch._foreach_norm(gradients, math.inf)).isfinite().all()):
            optimizer.zero_grad()
            raise NonFinite(
                f"Generation {generation}: the sum over the members is not finite in {gradients[0].dtype}. The "
                "weights are unchanged. Scale the fitness down, or use shaping='centered_rank'."
            )
        before = [parameter.clone() for parameter in parameters]
        optimizer.step()
        optimizer.zero_grad()
        if schedule is not None:
            schedule.step()
        changes = torch._foreach_norm(torch._foreach_sub(parameters, before), 2, torch.float64)
        self.masters.write(seed_of(self.settings.seed, generation, "rounding"))
        return float(torch.linalg.vector_norm(torch.stack(changes)))

    def _set_gradients(self, coefficients: Tensor, generation: int) -> None:
        std, device = self.settings.std_at(generation), self.std.device
        self.std.fill_(std)
        coefficients, seed = coefficients / -(std**2), seed_of(self.settings.seed, generation)
        if device.type == "cpu":
            gradients = self._gradients(coefficients, seed)  # a plain number: the whole draw is made at once
        else:
            addresses = [parameter.data_ptr() for parameter in self.masters.trained]
            if self.addresses != addresses:  # the captured graph reads the weights where they used to be
                self.captured_gradients, self.addresses = capture(self._gradients), addresses
            seed = torch.full((), seed, dtype=torch.int64, device=device)
            gradients = self.captured_gradients(coefficients.to(device), seed)
        for parameter, gradient in zip(self.order, gradients, strict=True):
            self.masters[parameter].grad = gradient

    def _gradients(self, coefficients: Tensor, seed: int | Tensor) -> list[Tensor]:
        """Return weight_decay · W̄ + Σ_n c_n ΔW_n of each Parameter, and set `order`."""
        decay, gradients = self.settings.weight_decay, []
        self.order.clear()
        with hold(self.model, seed, group=self.settings.shared):
            for parameter, total in weighted_sums(self.model, coefficients):
                self.order.append(parameter)
                gradient = total.add_(parameter.to(total.dtype), alpha=decay) if decay else total
                gradients.append(gradient.to(self.masters[parameter].dtype))
        return gradients
