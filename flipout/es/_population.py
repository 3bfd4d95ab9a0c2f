"""A population: the model, called for many members at once, each with its own weights."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._arguments import whole_number as whole_number
from .._model_calls import ModelCall, OutputSelector, check_selector, map_tensors, select
from ..draws.passes import Pass
from ..errors import ExampleCount, InvalidArgument, InvalidInput
from ..nn.base import Perturbed
from ..nn.contexts import hold
from ..nn.eval_mode import in_eval
from ..nn.held_weights import held_pass
from ._adapter import Adapter, adapter_of
from ._decode import Sampling
from ._generate import Generated, population_texts, refused_option
from ._seeds import seed_of

_OTHER_COUNT = (
    "If tokens or windows were folded into the rows, show the strategy a batch: EvolutionStrategy(…, "
    "example_inputs=batch)."
)


@dataclass(frozen=True, eq=False, repr=False)
class Population:
    """Members of one generation, callable like the model.

    A call runs the model in eval mode, without gradients, each member under its own weights. A member keeps its
    weights in every call of the generation, so an episode sees one network. The call says how its inputs are laid out;
    nothing is guessed:

    - `population(x)`: dimension 0 of x is the member. The rest is what the model takes for one example.
    - `population(x, batched=True)`: x is (members, batch, …). The model sees (members · batch, …), each member's rows
      under its weights, and its outputs are split again.
    - `population(**batch, output="logits")`: keywords are the model's. `output` selects one tensor of what the model
      returns: the name of a field, a position or a function. Without it, everything is returned.

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
    def __call__(
        self, *inputs: Any, batched: bool = False, output: OutputSelector | None = None, **options: Any
    ) -> Any:
        rows, call = 1, ModelCall(inputs, options)
        check_selector(output, of="population")
        if batched:
            rows = self._batch_rows(call.tensors())
            call = call.mapped(lambda x: x.flatten(0, 1))
        with self._held(rows):
            try:
                outputs = call(self.model)
            except (InvalidInput, ExampleCount) as error:
                raise type(error)(f"{error} {self._expected(batched)}") from error
        outputs = select(outputs, output, of="population")
        return map_tensors(outputs, lambda y: self._split(y, rows)) if batched else outputs

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
            def members(*inputs: Any, output: OutputSelector | None = None, **options: Any) -> Any:
                check_selector(output, of="population")
                held = layer.flipout.held
                if held is None or held.session is not session:
                    raise InvalidInput(
                        "The function of population.formed() was called outside its `with` block, or inside another "
                        "one: the members' weights exist only in their own block."
                    )
                return select(self.model(*inputs, **options), output, of="population")

            yield members

    def generate(
        self,
        prompts: Any,
        max_new_tokens: int,
        *,
        do_sample: bool = False,
        temperature: float = 1.0,
        top_k: int | None = None,
        members: int | None = None,
        eos_token_id: int | Sequence[int] | None = None,
        pad_token_id: int | None = None,
        captured: bool = False,
        **options: Any,
    ) -> Generated:
        """Let every member continue every prompt, with a causal language model of transformers.

        Members × prompts are the rows of one batch with a cache of keys and values. A member keeps its weights over the
        whole text. Texts end at an end token, and the call ends when all texts of a chunk have. Of the model's
        `generation_config` only the end and padding tokens are used.

        Args:
            prompts: Token ids, the same prompts for all members: lists of ids, a tensor (prompts, length), or what a
                tokenizer returns, padded on the left.
            max_new_tokens: Largest number of tokens to write.
            do_sample: Draw tokens instead of taking the most likely one. All members see the same random numbers, which
                change with the generation.
            temperature: Divides the logits. With `do_sample` only.
            top_k: Draw among this many most likely tokens. With `do_sample` only.
            members: Number of members at a time, which bounds the memory. The last chunk may have fewer. The default is
                all. The texts do not depend on it, except by rounding.
            eos_token_id: End token, or several. The default is the model's own.
            pad_token_id: What follows the end of a text. The default is the model's own, or its end token.
            captured: Replay one CUDA graph for each token after the third, so that Python is not what takes the time.
                Keys and values get their full memory at once. On a CPU nothing is captured.
            **options: No other option of transformers' `generate` is taken.

        Returns:
            The new tokens, (members, prompts, tokens), and their lengths.

        Raises:
            InvalidInput: The model is no causal language model, the prompts are malformed or too long, or logits are
                not finite.
            InvalidArgument: An argument is out of range, or an option such as `num_beams` is not taken.
            Unsupported: The model is an encoder with a decoder, or returns no cache of keys and values. With
                `captured`: its cache cannot stay at a fixed place.

        Example:
            >>> prompts = tokenizer(["2 + 2 =", "The capital of France is"])["input_ids"]
            >>> texts = population.generate(prompts, 8, members=64).texts(tokenizer)
        """
        for name, value in options.items():
            raise refused_option(name, value)
        sampling = Sampling(do_sample, temperature, top_k)
        ends = eos_token_id, pad_token_id
        return population_texts(self, prompts, max_new_tokens, sampling, members, *ends, captured)

    def adapter(self, member: int) -> Adapter:
        """Return a member as a LoRA adapter of rank one, which serving engines load beside the mean weights.

        Args:
            member: Index of the member in this population.

        Returns:
            The adapter in PEFT's format. `adapter.save(folder)` writes it.

        Raises:
            InvalidArgument: There is no such member.
            Unsupported: The scheme is not "rank_one", or a bias or a convolution has noise.

        Example:
            >>> population.adapter(3).save("member-3")
            >>> peft.PeftModel.from_pretrained(plain_model, "member-3")
        """
        member = whole_number("member", member, 0, of="adapter")
        if member >= self.size:
            raise InvalidArgument(
                f"adapter(member={member}): this population has {self.size} members, 0 to {self.size - 1}."
            )
        with self._held(1):
            return adapter_of(self.model, member)

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
            session.count(self.size * rows, f"a population of {self.size} members", advice=_OTHER_COUNT)
            yield session

    def _first_layer(self) -> Perturbed:
        return next(layer for layer in self.model.modules() if isinstance(layer, Perturbed))

    def _expected(self, batched: bool) -> str:
        if batched:
            return f"(In a population of {self.size} members, whose rows reach the layer one member after another.)"
        return (
            f"(In a population of {self.size} members: inputs are ({self.size}, …), one for each member. If all "
            "members see one batch: population(x.expand(population.size, *x.shape), batched=True). If each has its "
            f"own, ({self.size}, batch, …): population(x, batched=True).)"
        )

    def _batch_rows(self, tensors: list[Tensor]) -> int:
        """Return the rows per member, on which all tensors must agree."""
        shapes = [x.shape for x in tensors]
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
