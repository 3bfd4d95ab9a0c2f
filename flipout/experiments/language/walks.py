"""Walking a language model along a text: windows in order, the state carried along, the losses added up."""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import flipout
from flipout.errors import InvalidArgument

from ..training.modes import in_eval_mode
from .models import ModelOutput, RegularizedModel


def streams(tokens: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Cut a text into streams: inputs and targets (count, length). Fewer than `count` tokens are left over."""
    length = (len(tokens) - 1) // count
    if not length:
        raise InvalidArgument(f"{count} streams of a text of {len(tokens)} tokens: each stream needs at least 2.")
    inputs, targets = (tokens[i : i + length * count].view(count, length) for i in (0, 1))
    return inputs, targets


class Walk:
    """A walk along a text, one window after the other.

    The recurrent state and the sum of losses stay on the device, so that no step waits for it. `places` holds the start
    of each window and the offsets of its tokens, as tensors so that a captured function can take them. The last window
    may be shorter.
    """

    def __init__(
        self, model: RegularizedModel, tokens: Tensor, count: int, window: int, *, carried: bool = True
    ) -> None:
        self.model, self.carried = model, carried
        self.inputs, self.targets = streams(tokens, count)
        self.full, rest = divmod(self.inputs.shape[1], window)
        self.starts = torch.arange(0, self.inputs.shape[1], window, device=tokens.device)
        self.total = torch.zeros((), dtype=torch.float64, device=tokens.device)
        self.state = model.start(count)
        within = torch.arange(window, device=tokens.device)
        lengths = [window] * self.full + [rest] * (rest > 0)
        self.places = [(start, within[:length]) for start, length in zip(self.starts, lengths, strict=True)]

    @property
    def predicted(self) -> int:
        return self.targets.numel()

    def begin(self, order: Tensor | None = None) -> None:
        """Begin from a zero state, with the full windows in an `order` if given."""
        if order is not None:
            self.starts[: self.full] = order.to(self.starts.device) * len(self.places[0][1])
        self.total.zero_()
        self._reset()

    def evaluate(self, start: Tensor, within: Tensor) -> tuple[ModelOutput, Tensor]:
        """Return the output of the model on a window, and its mean loss."""
        inputs, targets = (side.index_select(1, start + within) for side in (self.inputs, self.targets))
        output = self.model(inputs, self.state)
        return output, cross_entropy(output.logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def move(self, output: ModelOutput, loss: Tensor) -> None:
        """Add the loss of a window, and carry its state to the next."""
        self.total += loss.detach().double() * (output.logits.shape[0] * output.logits.shape[1])
        if not self.carried:
            return self._reset()
        for layer, last in zip(self.state, output.state, strict=True):
            for current, following in zip(layer, last, strict=True):
                current.copy_(following)

    @torch.no_grad()
    def _reset(self) -> None:
        for layer in self.state:
            for part in layer:
                part.zero_()


class Reading:
    """Computes the mean loss of a text, cut into `count` streams, at the mean weights."""

    def __init__(
        self, model: RegularizedModel, tokens: Tensor, count: int = 1, window: int = 256, *, carried: bool = True
    ) -> None:
        self.walk = Walk(model, tokens, count, window, carried=carried)
        self.step = flipout.capture(self._step)

    @torch.no_grad()
    def __call__(self) -> Tensor:
        """Return the nats per token, on the device."""
        self.walk.begin()
        with in_eval_mode(self.walk.model):
            for place in self.walk.places:
                self.step(*place)
        return self.walk.total / self.walk.predicted

    def close(self) -> None:
        self.step.close()

    def _step(self, start: Tensor, within: Tensor) -> None:
        self.walk.move(*self.walk.evaluate(start, within))


def read(model: RegularizedModel, tokens: Tensor, count: int = 1, window: int = 256, *, carried: bool = True) -> float:
    """Return the mean loss that `Reading` computes."""
    reading = Reading(model, tokens, count, window, carried=carried)
    loss = float(reading())
    reading.close()
    return loss


@torch.no_grad()
def spelled_out(model: RegularizedModel, tokens: Tensor) -> float:
    """Return the loss by its definition: one token after the other, each predicted from all before it."""
    state, losses = model.start(1), []
    with in_eval_mode(model):
        for token, following in pairwise(tokens):
            output = model(token.view(1, 1), state)
            state = output.state
            losses.append(cross_entropy(output.logits.flatten(0, 1).double(), following.view(1)))
    return float(torch.stack(losses).mean())
