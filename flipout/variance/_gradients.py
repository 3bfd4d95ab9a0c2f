"""Gradients of fresh batches under fresh draws, many at a time, in bounded memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from .._capture import Captured
from ..errors import InvalidArgument
from ..nn.contexts import hold, perturbed_layers
from ..schemes import Scheme

Loss = Callable[[Any, Tensor], Tensor]
Batches = tuple[Tensor, Tensor] | Callable[[int, torch.Generator], tuple[Tensor, Tensor]]
Gradients = dict[str, Tensor]  # part of a Parameter → (draws, *shape)

# Numbers in the gradients (or in the weights of their own that examples have) of one pass, and examples whose batches
# wait together.
_NUMBERS = {"cpu": 2**26, "cuda": 2**30}
_EXAMPLES = {"cpu": 2**12, "cuda": 2**16}


def parts(model: nn.Module) -> dict[str, tuple[str, slice]]:
    """What is averaged over: each Parameter that has a gradient, and each gate of an LSTM's weights apart."""
    made: dict[str, tuple[str, slice]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        owner = model.get_submodule(name.rpartition(".")[0])
        if isinstance(owner, (nn.LSTM, nn.LSTMCell)) and parameter.shape[0] % 4 == 0:
            size = parameter.shape[0] // 4
            for i, gate in enumerate("ifco"):
                made[f"{name}[{gate}]"] = (name, slice(i * size, (i + 1) * size))
        else:
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
    at_once: int | None = None  # at most so many draws in one vmap
    parts: dict[str, tuple[str, slice]] = field(init=False)

    def __post_init__(self) -> None:
        perturbed_layers(self.model)
        _check_frozen(self.model)
        _check_data(self.data)
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

    def point(self, size: int, scheme: Scheme, bases: int = 1) -> "Point":
        return Point(self, size, scheme, bases)

    def under(self, seed: Tensor, x: Tensor, y: Tensor, sign_seed: Tensor | None = None, **fields: Any) -> Gradients:
        """The mean gradient of each batch under the draw of its seed."""
        means = {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}

        def loss(means: Gradients, seed: Tensor, signs: Tensor | None, x: Tensor, y: Tensor) -> Tensor:
            with hold(self.model, seed=seed, sign_seed=signs, **fields):
                return self.loss(torch.func.functional_call(self.model, means, (x,)), y)

        if len(seed) > 1:
            dims = (None, 0, None if sign_seed is None else 0, 0, 0)
            return torch.func.vmap(torch.func.grad(loss), dims, randomness="different")(means, seed, sign_seed, x, y)
        leaves = {name: mean.requires_grad_() for name, mean in means.items()}
        value = loss(leaves, seed[0], None if sign_seed is None else sign_seed[0], x[0], y[0])
        made = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
        return {name: gradient.unsqueeze(0) for name, gradient in zip(leaves, made, strict=True)}


def _check_frozen(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if module.training and getattr(module, "track_running_stats", False):
            raise InvalidArgument(
                f"{name} ({type(module).__name__}) is in training mode: each measured batch would change its running "
                "statistics, and its examples would see each other. Call model.eval() first; the weights are perturbed "
                "in eval mode too."
            )


def _check_data(data: Any) -> None:
    if callable(data):
        return
    pair = tuple(data) if isinstance(data, (tuple, list)) else ()
    if len(pair) != 2 or not all(isinstance(part, Tensor) for part in pair) or len(pair[0]) != len(pair[1]):
        given = [tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in pair]
        raise InvalidArgument(
            f"data: {given or type(data).__name__} given; expected (inputs, targets), two tensors of one length, or a "
            "function (size, generator) → (inputs, targets)."
        )


def _check_loss(source: Sampler) -> None:
    """A batch given twice over has the same mean."""
    data = source.data
    x, y = data(2, torch.Generator()) if callable(data) else (part[:2] for part in data)
    x, y = x.to(source.device), y.to(source.device)
    with torch.no_grad(), hold(source.model, seed=0):
        output = source.model(x)
    if not isinstance(output, Tensor):
        return
    with torch.no_grad():
        once, twice = source.loss(output, y), source.loss(torch.cat((output, output)), torch.cat((y, y)))
    if once.dim() or not torch.isfinite(once) or not torch.allclose(once, twice, rtol=1e-3):
        given = [one.item() if one.dim() == 0 else tuple(one.shape) for one in (once, twice)]
        raise InvalidArgument(
            f"loss: {given[0]} for a batch and {given[1]} for the same batch twice over; expected a finite number, the "
            "mean over the examples (reduction='mean')."
        )


class Point:
    """One batch size: gradients of batches of `size` examples, some batches at a time.

    Where the scheme forms weights for each example, fewer fit in memory; one that `vmap` does not see through is
    measured one batch at a time.
    """

    def __init__(self, source: Sampler, size: int, scheme: Scheme, bases: int) -> None:
        if bases < 1 or size % bases:
            raise InvalidArgument(f"bases={bases}: a batch of {size} examples does not split into that many shares.")
        numbers, waiting = (table.get(source.device.type, table["cpu"]) for table in (_NUMBERS, _EXAMPLES))
        self.source, self.size, self.bases = source, size, bases
        self.sub_batch = min(source.sub_batch, size // bases)
        if scheme.own_weights:
            self.sub_batch = max(min(self.sub_batch, numbers // source.size), 1)
        weights = source.size * (self.sub_batch if scheme.own_weights else 1)
        most = source.at_once or waiting if scheme.transformable else 1
        self.at_once = max(1, min(numbers // weights, waiting // size, most))
        self.gradients = Captured(self._gradients)

    def draws(self, count: int, twice: bool = False) -> Iterator[tuple[Gradients, ...]]:
        """Gradients of `count` batches, valid until the next are asked for; `twice`: two draws on each batch."""
        for some in self.chunks(count):
            x, y = self.source.batch(some, self.size)
            made = self.gradients(x, y, self._seeds(some))
            if not twice:
                yield (made,)
                continue
            first = {name: gradient.clone() for name, gradient in made.items()}
            yield first, self.gradients(x, y, self._seeds(some))

    def chunks(self, count: int) -> list[int]:
        """`count` batches in parts of as many as memory is meant for: equal ones, where a number not much smaller
        divides the count, so that all of them can be replayed as one graph."""
        most = min(self.at_once, count)
        some = next((n for n in range(most, most // 2, -1) if count % n == 0), most)
        return [min(some, count - done) for done in range(0, count, some)]

    def _seeds(self, draws: int) -> Tensor:
        return self.source.seeds(self.bases * draws).view(self.bases, draws)

    def _gradients(self, x: Tensor, y: Tensor, seeds: Tensor) -> Gradients:
        """The gradient of each batch, accumulated over its sub-batches."""
        share = self.size // self.bases
        total: Gradients = {}
        for base, seed in enumerate(seeds.unbind(0)):
            for start in range(0, share, self.sub_batch):
                rows = slice(base * share + start, base * share + min(start + self.sub_batch, share))
                # Numbered through the batch, as those of data-parallel ranks: signs that are reused differ too.
                part = self.source.under(seed, x[:, rows], y[:, rows], first=rows.start)
                for name, gradient in part.items():
                    gradient = gradient * ((rows.stop - rows.start) / self.size)
                    total[name] = gradient if name not in total else total[name].add_(gradient)
        return {label: total[name][:, rows] for label, (name, rows) in self.source.parts.items()}


def sampler(
    model: nn.Module,
    loss: Loss,
    data: Batches,
    generator: torch.Generator | None,
    sub_batch: int,
    at_once: int | None,
) -> Sampler:
    if generator is None:
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ()).item()))
    sub_batch, at_once = (
        whole_number("sub_batch", sub_batch, 1),
        None if at_once is None else whole_number("at_once", at_once, 1),
    )
    made = Sampler(model, loss, data, generator, sub_batch, at_once)
    _check_loss(made)
    return made
