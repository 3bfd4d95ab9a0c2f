"""A language model's way along a text: windows in order, state carried, and the sum of its losses."""

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import flipout

from ..errors import InvalidArgument
from ..nn.eval_mode import in_eval
from .language_models import Made, RegularizedModel


def streams(tokens: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(count, length) inputs and targets: each stream a part of the text. Fewer than `count` tokens are left over."""
    length = (len(tokens) - 1) // count
    if not length:
        raise InvalidArgument(f"{count} streams of a text of {len(tokens)} tokens: give each stream 2 or more of them.")
    inputs, targets = (tokens[i : i + length * count].view(count, length) for i in (0, 1))
    return inputs, targets


class Walk:
    """State and sum stay on the device, so that nothing in a step waits for it. A place is where a window begins, and
    which of its tokens there are: tensors, as captured functions want them. The last window may be shorter."""

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
        """From a zero state; the full windows in an order, if one is given."""
        if order is not None:
            self.starts[: self.full] = order.to(self.starts.device) * len(self.places[0][1])
        self.total.zero_()
        self._reset()

    def look(self, start: Tensor, within: Tensor) -> tuple[Made, Tensor]:
        """The model on a window, and its mean loss."""
        inputs, targets = (side.index_select(1, start + within) for side in (self.inputs, self.targets))
        made = self.model(inputs, self.state)
        return made, cross_entropy(made.logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def move(self, made: Made, loss: Tensor) -> None:
        """On from a window."""
        self.total += loss.detach().double() * (made.logits.shape[0] * made.logits.shape[1])
        if not self.carried:
            return self._reset()
        for layer, last in zip(self.state, made.state, strict=True):
            for held, part in zip(layer, last, strict=True):
                held.copy_(part)

    @torch.no_grad()
    def _reset(self) -> None:
        for layer in self.state:
            for held in layer:
                held.zero_()


class Reading:
    """The mean loss of a text at the mean weights, `count` streams at a time; one stream is the text as it is."""

    def __init__(
        self, model: RegularizedModel, tokens: Tensor, count: int = 1, window: int = 256, *, carried: bool = True
    ) -> None:
        self.walk = Walk(model, tokens, count, window, carried=carried)
        self.step = flipout.capture(self._step)

    @torch.no_grad()
    def __call__(self) -> Tensor:
        """Nats per token, on the device."""
        self.walk.begin()
        with in_eval(self.walk.model):
            for place in self.walk.places:
                self.step(*place)
        return self.walk.total / self.walk.predicted

    def close(self) -> None:
        self.step.close()

    def _step(self, start: Tensor, within: Tensor) -> None:
        self.walk.move(*self.walk.look(start, within))


def read(model: RegularizedModel, tokens: Tensor, count: int = 1, window: int = 256, *, carried: bool = True) -> float:
    """What a `Reading` finds, once."""
    reading = Reading(model, tokens, count, window, carried=carried)
    found = float(reading())
    reading.close()
    return found


@torch.no_grad()
def spelled_out(model: RegularizedModel, tokens: Tensor) -> float:
    """The definition: one token after the other, each predicted from all before it."""
    state, losses = model.start(1), []
    with in_eval(model):
        for given, following in pairwise(tokens):
            made = model(given.view(1, 1), state)
            state = made.state
            losses.append(cross_entropy(made.logits.flatten(0, 1).double(), following.view(1)))
    return float(torch.stack(losses).mean())
