"""A population: the model, called for many members at once, each with weights of its own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..draws.passes import Pass
from ..errors import ExampleCount, InvalidInput
from ..nn.contexts import hold
from ..nn.eval_mode import in_eval
from ..nn.held_weights import held_pass
from ..nn.models import perturbed_layers


def seed_of(seed: int, generation: int, what: str = "noise") -> int:
    """63 bits, the same in every process."""
    return int.from_bytes(blake2b(f"{what} {seed} {generation}".encode(), digest_size=8).digest(), "little") >> 1


@dataclass(frozen=True, eq=False)
class Population:
    """`size` members, `first` onward of generation `generation`; with `antithetic`, their mirror images.

    Called, it is the model in eval mode without gradients, its perturbations those of the members: the same ones in
    every call, so that an episode sees one network. Nothing but the arguments says what is a member:

    - `population(x)`: dimension 0 of x is the member; the rest is what the model takes for one example;
    - `population(x, batched=True)`: (members, batch, …). The model gets (members · batch, …), each member's rows under
      its weights, and what it returns is split again.
    """

    model: nn.Module
    seed: int
    generation: int
    first: int
    size: int
    group: int
    antithetic: bool = False
    now: Callable[[], int] | None = field(default=None, repr=False)  # the strategy's generation

    def __len__(self) -> int:
        return self.size

    @torch.no_grad()
    def __call__(self, *inputs: Any, batched: bool = False, **options: Any) -> Any:
        rows, given = 1, (inputs, options)
        if batched:
            rows = self._batch(given)
            given = _mapped(given, lambda x: x.flatten(0, 1))
        with self._held(rows):
            try:
                made = self.model(*given[0], **given[1])
            except (InvalidInput, ExampleCount) as error:
                raise type(error)(f"{error} {self._expected(batched)}") from error
        return _mapped(made, lambda y: self._split(y, rows)) if batched else made

    def _expected(self, batched: bool) -> str:
        if batched:
            return (
                f"(In a population of {self.size}, which gave the layer the rows of all its members one after another.)"
            )
        return (
            f"(In a population of {self.size}: inputs are ({self.size}, …), one for each member. Where each has a "
            f"batch, ({self.size}, batch, …): population(x, batched=True).)"
        )

    @contextmanager
    def formed(self) -> Iterator[Callable[..., Any]]:
        """As `population(x)`, its members' weights formed once: for many calls of one row each, such as an episode's.
        They agree to rounding. The memory is that of members × weights."""
        layer = next(iter(perturbed_layers(self.model).values()))

        @torch.no_grad()
        def members(*inputs: Any, **options: Any) -> Any:
            if layer.flipout.held is None or layer.flipout.held.session is not session:
                raise InvalidInput(
                    "The members of population.formed() were called after its `with`, or inside of another one's: "
                    "their weights are there only inside of their own."
                )
            return self.model(*inputs, **options)

        with self._held(1) as session:
            session.formed = {}
            yield members

    @contextmanager
    def _held(self, rows: int) -> Iterator[Pass]:
        if self.now is not None and self.now() != self.generation:
            raise InvalidInput(
                f"This population is of generation {self.generation}, and the strategy is at {self.now()}: `tell` has "
                "changed the weights that its members were around. Ask anew: strategy.ask()."
            )
        noise, draws = seed_of(self.seed, self.generation), {"first": self.first, "rows": rows, "group": self.group}
        with in_eval(self.model), hold(self.model, noise, antithetic=self.antithetic, **draws):
            session, _ = held_pass(next(iter(perturbed_layers(self.model).values())))
            session.count(self.size * rows, f"a population of {self.size} members")
            yield session

    def generator(self) -> torch.Generator:
        """The same numbers for every part of a generation, in any process: to choose its mini-batch with."""
        return torch.Generator().manual_seed(seed_of(self.seed, self.generation, "fitness"))

    def _batch(self, given: Any) -> int:
        """Rows of a member, on which all tensors agree."""
        shapes: list[torch.Size] = []
        _mapped(given, lambda x: shapes.append(x.shape))
        wrong = next((s for s in shapes if len(s) < 2 or s[0] != self.size or s[:2] != shapes[0][:2]), None)
        if wrong is not None or not shapes:
            given = "no tensor" if wrong is None else f"a tensor of shape {tuple(wrong)}"
            raise InvalidInput(
                f"population(…, batched=True): {given} given; expected ({self.size}, batch, …): {self.size} members "
                "first, then each member's batch, the same in all arguments. Where all members see one batch: "
                "x.expand(population.size, *x.shape)."
            )
        return shapes[0][1]

    def _split(self, y: Tensor, rows: int) -> Tensor:
        if y.dim() == 0 or y.shape[0] != self.size * rows:
            raise InvalidInput(
                f"population(…, batched=True): the model returned a tensor of shape {tuple(y.shape)} for {self.size} · "
                f"{rows} rows; expected these rows in dimension 0."
            )
        return y.unflatten(0, (self.size, rows))


def _mapped(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """The same tuples, lists and dictionaries, with each tensor in them mapped."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, (tuple, list)) and not isinstance(value, PackedSequence):
        parts = [_mapped(part, function) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {key: _mapped(part, function) for key, part in value.items()}
    return value
