"""Folding samples into the batch: which rows pass through the model together, under which part of the draw."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._arguments import whole_number
from .._left import perturbed_parameters
from .._model_calls import ModelCall, ModelInputs, OutputSelector, check_selector, model_call, select_tensor
from ..draws.at_once import FILLED
from ..draws.draw import fresh_seed, runs
from ..draws.passes import Pass
from ..errors import AsymmetricDistribution, InvalidArgument, InvalidInput
from ..nn.contexts import drawing
from ..nn.eval_mode import in_eval
from ..nn.formed_calls import FormedCalls
from ..nn.linear import Linear
from ..nn.models import perturbed_layers
from ..nn.walk import named_parameters
from ..schemes import SchemeName
from ._input_count import count_inputs
from ._posterior import CONVERT

_BASES_AT_ONCE = 2**26  # most numbers in one layer's ΔŴ, over all bases of a pass
_OTHER_COUNT = (
    "If the inputs have the examples in another dimension, say in which: predict(…, batch_dim=1). If time, tokens or "
    "windows were folded into the rows, show perturb a batch, perturb(…, example_inputs=batch)."
)
_ROWS, _NUMBERS = 1024, 2**19  # rows of a pass, or more as long as its widest layer has at most 2¹⁹ numbers
_LARGE = 2**21  # numbers of inputs that keep a device busy for one sample
_FORMED = 2**28  # most weights of all samples that are formed together


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
        x: ModelInputs,
        joint: bool,
        chunk: int | None,
        group: int,
        batch_dim: int | tuple[int, int],
        seed: int | Tensor | None,
        output: OutputSelector | None = None,
        antithetic: bool = False,
    ) -> None:
        group = whole_number("group", group, 1, of="predict")
        self.images = (False, True) if antithetic else (False,)  # each draw, and its mirror image
        if group % len(self.images):
            raise InvalidArgument(
                f"predict(group={group}, antithetic=True): a base serves whole pairs of samples. Use group={group + 1}."
            )
        chunk = None if chunk is None else whole_number("chunk", chunk, 1, of="predict")
        self.model, self.layers = model, perturbed_layers(model, CONVERT)
        check_selector(output, of="predict")
        self.call, self.output = model_call(x), output
        self.tensors = self.call.tensors()
        pair = batch_dim if isinstance(batch_dim, tuple) and len(batch_dim) == 2 else (batch_dim, batch_dim)
        more = " of the examples, or a pair: one for the inputs, one for the output."
        self.batch_dim, self.out_dim = (whole_number("batch_dim", dim, 0, of="predict", more=more) for dim in pair)
        self.inputs = count_inputs(x, self.call, self.batch_dim)
        self.joint, self.group = joint, group
        self.scheme: SchemeName = "flipout"
        parameters = [parameter for _, parameter in named_parameters(model)]
        device = parameters[0].device
        bases = max(_BASES_AT_ONCE // max(p.numel() for p in parameters), 1)
        if chunk is None:
            widest = max(
                max(x.numel() for x in self.tensors) // self.inputs, *(max(p.shape, default=1) for p in parameters), 1
            )
            chunk = max(_ROWS, _NUMBERS // widest)
        noise = (noise for layer in self.layers.values() for noise in layer.flipout.distributions.values())
        if not all(distribution.symmetric for distribution in noise):
            if antithetic:
                raise AsymmetricDistribution(
                    "predict(antithetic=True): the model has noise that is not symmetric about 0, so the mirror image "
                    "of a draw has another distribution. Leave antithetic out."
                )
            # Flipping needs symmetry. Without it no samples share a base: each draws its own weights.
            self.scheme, self.group = "independent", 1
            chunk = chunk if joint else min(chunk, bases)
        # On a GPU, a pass that one base fills is faster than several bases, whose products are batched.
        is_filled = self.group * self.inputs >= FILLED and device.type != "cpu"
        self.samples_at_once = max(min(chunk // self.inputs, self.group if is_filled else self.group * bases), 1)
        length = min(chunk, self.inputs)
        self.blocks = [Block(i, min(length, self.inputs - i)) for i in range(0, self.inputs, length)]
        self.forms = False
        if joint:
            weights = max(sum(p.numel() for p in perturbed_parameters(model).values()), 1)
            self.forms = self._forms(length, weights)
            if self.forms:
                self.samples_at_once = min(self.group, _FORMED // weights)
        if seed is None:
            drawn = fresh_seed(device)
            seed = int(drawn) if drawn.device.type == "cpu" else drawn  # on a GPU, reading it would make the host wait
        self.seed = seed
        self.draw_next: Callable[..., Pass] = _not_running
        self.formed_calls = FormedCalls(())

    @contextmanager
    def running(self) -> Iterator[None]:
        """Put the model in eval mode, with its noise on, for calls of `outputs`."""
        with in_eval(self.model), drawing(self.model, self.layers, self.seed, self.scheme) as self.draw_next:
            if not self.forms:
                yield
                return
            self.formed_calls = FormedCalls(self.layers.values())
            with self.formed_calls.open():
                yield

    def outputs(self, block: Block, start: int, stop: int) -> Iterator[Tensor]:
        """Yield outputs (samples, inputs, …) of the samples `start` to `stop`, which hold whole pairs.

        A pass that reaches the end of a base stops at the end of one, so a base is split only if a pass cannot hold it.
        """
        images = len(self.images)
        for draw, count in runs(start // images, (stop - start) // images, self.samples_at_once, self.group // images):
            make = self._formed_passes if self.forms else self._pass
            outputs = [make(block, draw, count, is_mirrored) for is_mirrored in self.images]
            # A sample is followed by its mirror image.
            yield outputs[0] if images == 1 else torch.stack(outputs, 1).flatten(0, 1)

    def _forms(self, length: int, weights: int) -> bool:
        """Return True if forming the weights of each sample costs less than a second product, of its perturbation.

        Then a sample is one plain pass. The weights of all samples of a base are formed together. Not for weights in
        half precision, where adding ΔŴ to W̄ would round ΔŴ away.
        """
        numbers = max(x.numel() for x in self.tensors) // self.inputs * length
        is_usual = all(isinstance(layer, (Linear, nn.modules.conv._ConvNd)) for layer in self.layers.values())
        is_precise = all(p.itemsize >= 4 for p in self.model.parameters())
        return is_usual and is_precise and numbers >= max(_LARGE, weights // 4) and weights <= _FORMED

    def _formed_passes(self, block: Block, draw: int, count: int, is_mirrored: bool) -> Tensor:
        """Return the outputs (count, inputs, …) of one pass per sample, which forms the weights of that sample."""
        formed: dict[Hashable, Tensor] = {}
        passes = [
            self._pass(block, sample, 1, is_mirrored, (formed, (draw, count))) for sample in range(draw, draw + count)
        ]
        return torch.cat(passes)

    def _pass(
        self,
        block: Block,
        draw: int,
        count: int,
        is_mirrored: bool,
        formed: tuple[dict[Hashable, Tensor], tuple[int, int]] | None = None,
    ) -> Tensor:
        """Return the outputs (count, inputs, …) of one pass through the model."""
        dim, rows, group = self.batch_dim, count * block.length, self.group // len(self.images)
        call = self.call.mapped(lambda x: torch.cat([x.narrow(dim, block.start, block.length)] * count, dim))
        # Examples are numbered sample by sample. A block with only some of the inputs has one sample at a time.
        if self.joint:
            session = self.draw_next(first=draw, rows=block.length, group=group, antithetic=is_mirrored)
        else:
            first = draw * self.inputs + block.start
            session = self.draw_next(first=first, group=group * self.inputs, antithetic=is_mirrored)
        if formed is not None:
            session.formed, session.formed_for = formed
        session.count(rows, f"predict(batch_dim={dim})", advice=_OTHER_COUNT)
        if formed is not None:
            self.formed_calls.begin(session, draw - formed[1][0])
        output, dim = select_tensor(self._run(call, count), self.output, of="predict"), self.out_dim
        if formed is not None:
            self.formed_calls.end(session)
        if output.dim() <= dim or output.shape[dim] != rows:
            raise InvalidInput(
                f"predict: the model returned shape {tuple(output.shape)} for {rows} rows; expected a tensor with the "
                f"rows in dimension {dim} (batch_dim=(of the inputs, of the output) if they differ). If this is not "
                "the output, select it: predict(…, output=…)."
            )
        return output.movedim(dim, 0).unflatten(0, (count, block.length))

    def _run(self, call: ModelCall, count: int) -> Any:
        try:
            return call(self.model)
        except InvalidInput as error:
            shapes = ", ".join(str(tuple(x.shape)) for x in self.tensors)
            alone = " For one example alone: predict(model, x.unsqueeze(0))." if self.tensors[0].dim() == 1 else ""
            raise InvalidInput(
                f"predict: inputs of shape {shapes} given, {self.inputs} examples in dimension {self.batch_dim}; "
                f"{count} samples of them were folded into it.{alone} The model said: {error}"
            ) from error


def _not_running(**fields: Any) -> Pass:
    raise AssertionError("outside of Fold.running()")
