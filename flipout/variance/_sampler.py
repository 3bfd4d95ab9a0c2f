"""Random batches of the data, and the gradients of a frozen model under given draws."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from .._model_calls import ModelCall, OutputSelector, check_selector, map_tensors, model_call, select
from ..errors import InvalidArgument
from ..nn.contexts import hold
from ..nn.models import perturbed_layers
from ._checks import Batches, Loss, batch_tensors, check_data, check_frozen, check_function, check_loss

DrawnGradients = dict[str, Tensor]  # name → (draws, *shape)


def parameter_parts(model: nn.Module) -> dict[str, tuple[str, slice]]:
    """Map each label of a record to a Parameter's name and rows.

    A trainable Parameter is one part, except that each gate of an LSTM's weights is a part of its own.
    """
    parts: dict[str, tuple[str, slice]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        owner = model.get_submodule(name.rpartition(".")[0])
        if isinstance(owner, (nn.LSTM, nn.LSTMCell)) and parameter.shape[0] % 4 == 0:
            size = parameter.shape[0] // 4
            for i, gate in enumerate("ifco"):
                parts[f"{name}[{gate}]"] = (name, slice(i * size, (i + 1) * size))
        else:
            parts[name] = (name, slice(None))
    return parts


@dataclass
class Sampler:
    """A frozen model, its loss, and the source of its batches."""

    model: nn.Module
    loss: Loss
    data: Batches
    generator: torch.Generator
    sub_batch: int = 1024
    at_once: int | None = None
    output: OutputSelector | None = None
    call: ModelCall = field(init=False)  # of two examples, for the arguments that are not tensors
    targets: Tensor = field(init=False)  # of these examples
    parts: dict[str, tuple[str, slice]] = field(init=False)
    device: torch.device = field(init=False)
    weight_count: int = field(init=False)

    def __post_init__(self) -> None:
        perturbed_layers(self.model)
        check_frozen(self.model)
        check_data(self.data)
        self.parts = parameter_parts(self.model)
        self.device = next(self.model.parameters()).device
        x, y = self.data(2, torch.Generator()) if callable(self.data) else self.data
        self.call, self.targets = model_call(x).mapped(lambda part: part[:2].to(self.device)), y[:2].to(self.device)
        self.weight_count = sum(parameter.numel() for parameter in self.model.parameters())

    def batches(self, count: int, size: int) -> list[Tensor]:
        """Return the tensors of `count` batches, (count, size, …), the targets last.

        Tensors are drawn from with replacement.
        """
        examples = count * size
        if callable(self.data):
            x, y = self.data(examples, self.generator)
        else:
            x, y = self.data
            chosen = torch.randint(len(y), (examples,), generator=self.generator, device=self.generator.device)
            x, y = map_tensors((x, y), lambda part: part[chosen.to(part.device)])
        tensors = batch_tensors(x, y)
        if any(len(part) != examples for part in tensors):
            *inputs, targets = map(len, tensors)
            received = ", ".join(map(str, inputs))
            raise InvalidArgument(
                f"data({examples}, generator) returned {received} inputs and {targets} targets; expected {examples} of "
                "each."
            )
        return [part.to(self.device).unflatten(0, (count, size)) for part in tensors]

    def seeds(self, count: int) -> Tensor:
        """Return (count,) fresh seeds."""
        seeds = torch.randint(2**62, (count,), generator=self.generator, device=self.generator.device)
        return seeds.to(self.device)

    def gradients(
        self, seed: Tensor, batches: list[Tensor], sign_seed: Tensor | None = None, **draw: Any
    ) -> DrawnGradients:
        """Return the mean gradient of each batch under the draw of its seed. `draw` has further options of `hold`."""
        means = {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}

        def loss(means: DrawnGradients, seed: Tensor, signs: Tensor | None, batch: list[Tensor]) -> Tensor:
            call = self.call.with_tensors(batch[:-1])
            with hold(self.model, seed=seed, sign_seed=signs, **draw):
                returned = torch.func.functional_call(self.model, means, call.args, call.kwargs)
                return self.loss(select(returned, self.output, of="measure"), batch[-1])

        if len(seed) > 1:
            dims = (None, 0, None if sign_seed is None else 0, 0)
            return torch.func.vmap(torch.func.grad(loss), dims, randomness="different")(means, seed, sign_seed, batches)
        leaves = {name: mean.requires_grad_() for name, mean in means.items()}
        value = loss(leaves, seed[0], None if sign_seed is None else sign_seed[0], [x[0] for x in batches])
        gradients = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
        return {name: gradient.unsqueeze(0) for name, gradient in zip(leaves, gradients, strict=True)}


def checked_sampler(
    model: nn.Module,
    loss: Loss,
    data: Batches,
    generator: torch.Generator | None,
    sub_batch: int,
    at_once: int | None,
    output: OutputSelector | None,
) -> Sampler:
    """Check all arguments and return a sampler. Without a generator, seed one from torch's global generator."""
    if generator is None:
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ()).item()))
    sub_batch = whole_number("sub_batch", sub_batch, 1)
    at_once = None if at_once is None else whole_number("at_once", at_once, 1)
    check_selector(output, of="measure")
    check_function(loss)
    sampler = Sampler(model, loss, data, generator, sub_batch, at_once, output)
    check_loss(model, loss, sampler.call, sampler.targets, output)
    return sampler
