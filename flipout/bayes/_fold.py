"""Folding samples into the batch: which rows pass through the model together, under which part of the draw."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from ..draws.at_once import FILLED
from ..draws.draw import fresh_seed, runs
from ..draws.passes import Pass
from ..errors import InvalidArgument, InvalidInput
from ..nn.contexts import drawing
from ..nn.eval_mode import in_eval
from ..nn.models import perturbed_layers
from ..schemes import SchemeName
from ._elbo import ELBO
from ._posterior import CONVERT

_BASES_AT_ONCE = 2**26  # most numbers in one layer's ΔŴ, over all bases of a pass
_ROWS, _NUMBERS = 1024, 2**19  # rows of a pass, or more as long as its widest layer has at most 2¹⁹ numbers


@dataclass(frozen=True)
class Block:
    """The inputs `start` onward."""

    start: int
    length: int


class Fold:
    """Outputs of a model for many samples of the weights, in passes of at most `chunk` rows."""

    def __init__(
        self,
        model: nn.Module,
        x: Any,
        joint: bool,
        chunk: int | None,
        group: int,
        batch_dim: int | tuple[int, int],
        seed: int | Tensor | None,
    ) -> None:
        group = whole_number("group", group, 1, of="predict")
        chunk = None if chunk is None else whole_number("chunk", chunk, 1, of="predict")
        if isinstance(model, ELBO):
            raise InvalidArgument("predict(ELBO(…), x): expected the model, not its loss: predict(elbo.model, x).")
        self.model, self.layers = model, perturbed_layers(model, CONVERT)
        self.x = x if isinstance(x, tuple) else (x,)
        pair = batch_dim if isinstance(batch_dim, tuple) and len(batch_dim) == 2 else (batch_dim, batch_dim)
        more = " of the examples, or a pair: one for the inputs, one for the output."
        self.batch_dim, self.out_dim = (whole_number("batch_dim", dim, 0, of="predict", more=more) for dim in pair)
        self.inputs = self._count()
        self.joint, self.group = joint, group
        self.scheme: SchemeName = "flipout"
        parameters = list(model.parameters())
        device = parameters[0].device
        bases = max(_BASES_AT_ONCE // max(p.numel() for p in parameters), 1)
        if chunk is None:
            widest = max(self.x[0].numel() // self.inputs, *(max(p.shape, default=1) for p in parameters), 1)
            chunk = max(_ROWS, _NUMBERS // widest)
        noise = (noise for layer in self.layers.values() for noise in layer.flipout.distributions.values())
        if not all(distribution.symmetric for distribution in noise):
            # Flipping needs symmetry. Without it no samples share a base: each draws its own weights.
            self.scheme, self.group = "independent", 1
            chunk = chunk if joint else min(chunk, bases)
        # On a GPU, a pass that one base fills is faster than several bases, whose products are batched.
        is_filled = self.group * self.inputs >= FILLED and device.type != "cpu"
        self.samples_at_once = max(min(chunk // self.inputs, self.group if is_filled else self.group * bases), 1)
        length = min(chunk, self.inputs)
        self.blocks = [Block(i, min(length, self.inputs - i)) for i in range(0, self.inputs, length)]
        if seed is None:
            drawn = fresh_seed(device)
            seed = int(drawn) if drawn.device.type == "cpu" else drawn  # on a GPU, reading it would make the host wait
        self.seed = seed
        self.draw_next: Callable[..., Pass] = _not_running

    @contextmanager
    def running(self) -> Iterator[None]:
        """Put the model in eval mode, with its noise on, for calls of `outputs`."""
        with in_eval(self.model), drawing(self.model, self.layers, self.seed, self.scheme) as self.draw_next:
            yield

    def outputs(self, block: Block, start: int, stop: int) -> Iterator[Tensor]:
        """Yield outputs (samples, inputs, …) of the samples `start` to `stop`.

        A pass that reaches the end of a base stops at the end of one, so a base is split only if a pass cannot hold it.
        """
        for sample, count in runs(start, stop - start, self.samples_at_once, self.group):
            yield self._pass(block, sample, count)

    def _count(self) -> int:
        """Return the number of inputs."""
        dim = self.batch_dim
        for part in self.x:
            if not isinstance(part, Tensor) or part.dim() <= dim or part.shape[dim] != self.x[0].shape[dim]:
                given = f"a tensor of shape {tuple(part.shape)}" if isinstance(part, Tensor) else repr(type(part))
                raise InvalidInput(
                    f"predict: {given} given; expected a tensor, or a tuple of tensors for the arguments of the model, "
                    f"with the same number of inputs in dimension {dim} (batch_dim)."
                )
        if not self.x or not self.x[0].shape[dim]:
            raise InvalidInput("predict: there are no inputs; expected at least one example. Leave an empty batch out.")
        return self.x[0].shape[dim]

    def _pass(self, block: Block, sample: int, count: int) -> Tensor:
        """Return the outputs (count, inputs, …) of one pass through the model."""
        dim, rows = self.batch_dim, count * block.length
        parts = [torch.cat([part.narrow(dim, block.start, block.length)] * count, dim) for part in self.x]
        # Examples are numbered sample by sample. A block with only some of the inputs has one sample at a time.
        if self.joint:
            session = self.draw_next(first=sample, rows=block.length, group=self.group)
        else:
            session = self.draw_next(first=sample * self.inputs + block.start, group=self.group * self.inputs)
        session.count(rows, f"predict(batch_dim={dim})")
        output, dim = self._call(parts, count), self.out_dim
        if not isinstance(output, Tensor) or output.dim() <= dim or output.shape[dim] != rows:
            returned = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else repr(type(output))
            raise InvalidInput(
                f"predict: the model returned {returned} for {rows} rows; expected a tensor with the rows in "
                f"dimension {dim} (batch_dim=(of the inputs, of the output) if they differ). If the model returns "
                "more than its output, wrap it in a module that does not, and convert that."
            )
        return output.movedim(dim, 0).unflatten(0, (count, block.length))

    def _call(self, parts: list[Tensor], count: int) -> Any:
        try:
            return self.model(*parts)
        except InvalidInput as error:
            shapes = ", ".join(str(tuple(part.shape)) for part in self.x)
            alone = " For one example alone: predict(model, x.unsqueeze(0))." if self.x[0].dim() == 1 else ""
            raise InvalidInput(
                f"predict: inputs of shape {shapes} given, {self.inputs} examples in dimension {self.batch_dim}; "
                f"{count} samples of them were folded into it.{alone} The model said: {error}"
            ) from error


def _not_running(**fields: Any) -> Pass:
    raise AssertionError("outside of Fold.running()")
