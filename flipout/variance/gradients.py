"""Gradients of fresh batches under fresh draws, many at a time, in bounded memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InvalidArgument
from ..nn.contexts import hold, perturbed_layers

Loss = Callable[[Any, Tensor], Tensor]
Batches = tuple[Tensor, Tensor] | Callable[[int, torch.Generator], tuple[Tensor, Tensor]]
Gradients = dict[str, Tensor]  # part of a Parameter → (draws, *shape)

# What is computed at once: numbers in the gradients of one pass, and examples whose batches wait together.
_NUMBERS, _EXAMPLES = 2**26, 4096


def parts(model: nn.Module) -> dict[str, tuple[str, slice]]:
    """What is averaged over: each Parameter that has a gradient, and each gate of an LSTM's weights apart."""
    made: dict[str, tuple[str, slice]] = {}
    for name, parameter in model.named_parameters():
        owner = model.get_submodule(name.rpartition(".")[0])
        if isinstance(owner, (nn.LSTM, nn.LSTMCell)) and parameter.shape[0] % 4 == 0:
            size = parameter.shape[0] // 4
            for i, gate in enumerate("ifco"):
                made[f"{name}[{gate}]"] = (name, slice(i * size, (i + 1) * size))
        elif parameter.requires_grad:
            made[name] = (name, slice(None))
    return made


@dataclass
class Sampler:
    """A frozen model, its loss (the mean over a batch), and where its batches come from.

    Batches of more than `sub_batch` examples are accumulated over sub-batches, which see one base and signs of their
    own, or, with `bases` > 1, that many bases for equal shares of the batch.
    """

    model: nn.Module
    loss: Loss
    data: Batches
    generator: torch.Generator
    sub_batch: int = 1024
    parts: dict[str, tuple[str, slice]] = field(init=False)

    def __post_init__(self) -> None:
        perturbed_layers(self.model)
        self.parts = parts(self.model)
        self.device = next(self.model.parameters()).device
        self.size = sum(parameter.numel() for parameter in self.model.parameters())

    def batch(self, draws: int, size: int) -> tuple[Tensor, Tensor]:
        """(draws, size, …) inputs and targets; from tensors, with replacement."""
        if callable(self.data):
            x, y = self.data(draws * size, self.generator)
        else:
            x, y = self.data
            chosen = torch.randint(len(x), (draws * size,), generator=self.generator, device=self.generator.device)
            x, y = x[chosen.to(x.device)], y[chosen.to(y.device)]
        if len(x) != draws * size or len(y) != draws * size:
            raise InvalidArgument(
                f"data gave {len(x)} inputs and {len(y)} targets where {draws * size} were asked for."
            )
        return tuple(t.to(self.device).unflatten(0, (draws, size)) for t in (x, y))  # pyright: ignore[reportReturnType]

    def seeds(self, count: int) -> Tensor:
        made = torch.randint(2**62, (count,), generator=self.generator, device=self.generator.device)
        return made.to(self.device)

    def draws(self, count: int, size: int, bases: int = 1, twice: bool = False) -> Iterator[tuple[Gradients, ...]]:
        """Gradients of `count` batches of `size` examples, some at a time; `twice`: two draws on each batch."""
        if bases < 1 or size % bases:
            raise InvalidArgument(f"bases={bases}: a batch of {size} examples does not split into that many shares.")
        for some in self.chunks(count, size):
            x, y = self.batch(some, size)
            yield tuple(self.gradients(x, y, bases) for _ in range(2 if twice else 1))

    def chunks(self, count: int, size: int) -> list[int]:
        """`count` batches of `size` examples, as many at once as memory is meant for."""
        at_once = max(1, min(count, _NUMBERS // max(self.size, 1), _EXAMPLES // size))
        return [min(at_once, count - done) for done in range(0, count, at_once)]

    def gradients(self, x: Tensor, y: Tensor, bases: int) -> Gradients:
        draws, size = x.shape[:2]
        share = size // bases
        total: Gradients = {}
        for base in range(bases):
            seed = self.seeds(draws)
            for start in range(0, share, self.sub_batch):
                rows = slice(base * share + start, base * share + min(start + self.sub_batch, share))
                length = rows.stop - rows.start
                part = self.under(seed, x[:, rows], y[:, rows], first=start)
                for name, gradient in part.items():
                    gradient = gradient * (length / size)
                    total[name] = gradient if name not in total else total[name] + gradient
        return {label: total[name][:, rows] for label, (name, rows) in self.parts.items()}

    def under(self, seed: Tensor, x: Tensor, y: Tensor, sign_seed: Tensor | None = None, **fields: Any) -> Gradients:
        """The mean gradient of each batch under the draw of its seed."""
        means = {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}

        def loss(means: Gradients, seed: Tensor, signs: Tensor, x: Tensor, y: Tensor) -> Tensor:
            with hold(self.model, seed=seed, sign_seed=signs, **fields):
                return self.loss(torch.func.functional_call(self.model, means, (x,)), y)

        signs = seed if sign_seed is None else sign_seed
        if len(seed) > 1:
            return torch.func.vmap(torch.func.grad(loss), (None, 0, 0, 0, 0))(means, seed, signs, x, y)
        leaves = {name: mean.requires_grad_() for name, mean in means.items()}
        value = loss(leaves, seed[0], signs[0], x[0], y[0])
        made = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
        return {name: gradient.unsqueeze(0) for name, gradient in zip(leaves, made, strict=True)}


def sampler(model: nn.Module, loss: Loss, data: Batches, generator: torch.Generator | None, sub_batch: int) -> Sampler:
    if generator is None:
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ()).item()))
    if sub_batch < 1:
        raise InvalidArgument(f"sub_batch={sub_batch}: expected a number of examples ≥ 1.")
    return Sampler(model, loss, data, generator, sub_batch)
