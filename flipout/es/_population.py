"""A population: the model, called for many members at once, each with its own weights."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..draws.passes import Pass
from ..errors import ExampleCount, InvalidInput
from ..nn.base import Perturbed
from ..nn.contexts import hold
from ..nn.eval_mode import in_eval
from ..nn.held_weights import held_pass
from ._seeds import seed_of


@dataclass(frozen=True, eq=False, repr=False)
class Population:
    """Members of one generation, callable like the model.

    A call runs the model in eval mode, without gradients, each member under its own weights. A member keeps its
    weights in every call of the generation, so an episode sees one network. The layout of the inputs is said, never
    guessed:

    - `population(x)`: dimension 0 of x is the member. The rest is what the model takes for one example.
    - `population(x, batched=True)`: x is (members, batch, …). The model sees (members · batch, …), each member's rows
      under its weights, and its outputs are split again.

    Attributes:
        model: The perturbed model.
        seed: Seed of the strategy.
        generation: Index of the generation.
        first: Index of the first member.
        size: Number of members.
        group: Number of members that share one ΔŴ.
        antithetic: Whether these are the mirror images of the members.

    Example:
        >>> def fitness(population):
        ...     y = population(x.expand(population.size, *x.shape), batched=True)
        ...     return -(y - target).square().mean((1, 2))
    """

    model: nn.Module
    seed: int
    generation: int
    first: int
    size: int
    group: int
    antithetic: bool = False
    now: Callable[[], int] | None = None  # returns the strategy's generation

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        images = "mirror images of " if self.antithetic else ""
        last = self.first + self.size - 1
        return f"Population({images}members {self.first} to {last} of generation {self.generation})"

    @torch.no_grad()
    def __call__(self, *inputs: Any, batched: bool = False, **options: Any) -> Any:
        rows, arguments = 1, (inputs, options)
        if batched:
            rows = self._batch_rows(arguments)
            arguments = _mapped(arguments, lambda x: x.flatten(0, 1))
        with self._held(rows):
            try:
                outputs = self.model(*arguments[0], **arguments[1])
            except (InvalidInput, ExampleCount) as error:
                raise type(error)(f"{error} {self._expected(batched)}") from error
        return _mapped(outputs, lambda y: self._split(y, rows)) if batched else outputs

    @contextmanager
    def formed(self) -> Iterator[Callable[..., Any]]:
        """Form the members' weights once, for many calls with one row per member, such as an episode.

        The outputs agree with `population(x)` up to rounding. The weights take members × weights numbers of memory.

        Returns:
            A context manager. Its value is called like the population, without `batched`.

        Raises:
            InvalidInput: The function is called outside its `with` block.

        Example:
            >>> with population.formed() as members:
            ...     actions = members(observations)
        """
        with self._held(1) as session:
            session.formed, layer = {}, self._first_layer()

            @torch.no_grad()
            def members(*inputs: Any, **options: Any) -> Any:
                held = layer.flipout.held
                if held is None or held.session is not session:
                    raise InvalidInput(
                        "The function of population.formed() was called outside its `with` block, or inside another "
                        "one: the members' weights exist only in their own block."
                    )
                return self.model(*inputs, **options)

            yield members

    def generator(self) -> torch.Generator:
        """Return a random generator for choosing the mini-batch of this generation.

        Every chunk of the generation gets the same numbers, in every process.

        Returns:
            A fresh generator on the CPU.

        Example:
            >>> rows = torch.randint(len(x), (32,), generator=population.generator())
        """
        return torch.Generator().manual_seed(seed_of(self.seed, self.generation, "fitness"))

    @contextmanager
    def _held(self, rows: int) -> Iterator[Pass]:
        """Hold the members' draw, with `rows` rows for each member."""
        if self.now is not None and self.now() != self.generation:
            raise InvalidInput(
                f"This population belongs to generation {self.generation}, but the strategy is at generation "
                f"{self.now()}: `tell` has changed the mean weights since. Ask again: strategy.ask()."
            )
        seed, where = seed_of(self.seed, self.generation), {"first": self.first, "rows": rows, "group": self.group}
        with in_eval(self.model), hold(self.model, seed, antithetic=self.antithetic, **where):
            session, _ = held_pass(self._first_layer())
            session.count(self.size * rows, f"a population of {self.size} members")
            yield session

    def _first_layer(self) -> Perturbed:
        return next(layer for layer in self.model.modules() if isinstance(layer, Perturbed))

    def _expected(self, batched: bool) -> str:
        if batched:
            return f"(In a population of {self.size} members, whose rows reach the layer one member after another.)"
        return (
            f"(In a population of {self.size} members: inputs are ({self.size}, …), one for each member. If each "
            f"member has a batch, ({self.size}, batch, …), call population(x, batched=True).)"
        )

    def _batch_rows(self, arguments: Any) -> int:
        """Return the rows per member, on which all tensors must agree."""
        shapes: list[torch.Size] = []
        _mapped(arguments, lambda x: shapes.append(x.shape))
        wrong = next((s for s in shapes if len(s) < 2 or s[0] != self.size or s[:2] != shapes[0][:2]), None)
        if wrong is not None or not shapes:
            received = "no tensor" if wrong is None else f"a tensor of shape {tuple(wrong)}"
            raise InvalidInput(
                f"population(…, batched=True): {received} given; expected ({self.size}, batch, …): {self.size} members "
                "first, then the batch of each, the same in all arguments. For one batch that all members see: "
                "x.expand(population.size, *x.shape)."
            )
        return shapes[0][1]

    def _split(self, y: Tensor, rows: int) -> Tensor:
        """Split dimension 0 into (members, rows)."""
        if y.dim() == 0 or y.shape[0] != self.size * rows:
            raise InvalidInput(
                f"population(…, batched=True): the model returned a tensor of shape {tuple(y.shape)} for {self.size} · "
                f"{rows} rows; expected these rows in dimension 0."
            )
        return y.unflatten(0, (self.size, rows))


def _mapped(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """Apply a function to every tensor inside tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (tuple, list)) and not isinstance(value, PackedSequence):
        parts = [_mapped(part, function) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {key: _mapped(part, function) for key, part in value.items()}
    return value
