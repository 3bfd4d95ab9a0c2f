"""The slow truth: an LSTM one sequence and one time step at a time, with every mask in its place."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence

from tests.oracles import tensor

SIZES = 3, 4  # input_size, hidden_size
OPTIONS: list[dict[str, Any]] = [
    {},
    {"num_layers": 2, "bidirectional": True},
    {"num_layers": 2, "proj_size": 2, "bias": False, "batch_first": True},
    {"bidirectional": True, "proj_size": 3},
]
LENGTHS = {"dense": [4, 4, 4], "packed": [3, 5, 1], "unbatched": [4]}


@dataclass
class Masks:
    """The masks of one layer in one direction. Its steps are in the order in which it runs, padding included."""

    x: Tensor | None = None  # factor (N, time or 1, features), by time
    h: Tensor | None = None  # factor (N, width)
    g: Tensor | None = None  # factor (steps, N, hidden_size)
    c: Tensor | None = None  # factor of the new c (steps, N, hidden_size)
    zones: Sequence[Tensor] | None = None  # share of the last h and c that stays, (steps, N, …) each


@dataclass
class Batch:
    """Sequences in one of the forms that an LSTM takes, and a first state."""

    lstm: nn.LSTM
    form: str

    def __post_init__(self) -> None:
        lstm, self.lengths = self.lstm, LENGTHS[self.form]
        self.sequences = [tensor(length, lstm.input_size) for length in self.lengths]
        count, widths = (
            lstm.num_layers * (1 + lstm.bidirectional),
            (lstm.proj_size or lstm.hidden_size, lstm.hidden_size),
        )
        self.state = tuple(tensor(count, len(self.lengths), width) for width in widths)

    def run(self) -> list[Tensor]:
        """Return the outputs of the layer, sequence by sequence, then h and c."""
        if self.form == "unbatched":
            y, (h, c) = self.lstm(self.sequences[0], tuple(part[:, 0] for part in self.state))
            return [y, h.unsqueeze(1), c.unsqueeze(1)]
        if self.form == "packed":
            y, last = self.lstm(pack_sequence(self.sequences, enforce_sorted=False), self.state)
            assert isinstance(y, PackedSequence)
            return [*unpack_sequence(y), *last]
        dim = 0 if self.lstm.batch_first else 1
        y, last = self.lstm(torch.stack(self.sequences, dim), self.state)
        return [*y.unbind(dim), *last]

    def loop(self, masks: Sequence[Masks], output: Tensor | None = None) -> list[Tensor]:
        """Return what the definition gives. `masks` are by layer and direction, `output` is (N, time, features)."""
        lstm, outputs, last = self.lstm, [], []
        for n, x in enumerate(self.sequences):
            states = []
            for layer in range(lstm.num_layers):
                parts = []
                for reverse in range(1 + lstm.bidirectional):
                    layer_masks = masks[len(states)]
                    first = tuple(part[len(states), n] for part in self.state)
                    y, *state = self._direction(
                        x, f"_l{layer}{'_reverse' * reverse}", first, bool(reverse), layer_masks, n
                    )
                    parts.append(y)
                    states.append(state)
                x = torch.cat(parts, 1)
            outputs.append(x if output is None else x * output[n, : len(x)])
            last.append([torch.stack(parts) for parts in zip(*states, strict=True)])
        return [*outputs, *(torch.stack(parts, 1) for parts in zip(*last, strict=True))]

    def _direction(self, x: Tensor, suffix: str, state: Any, reverse: bool, masks: Masks, n: int) -> list[Tensor]:
        weights = dict(self.lstm.named_parameters())
        h, c = state
        x = x if masks.x is None else x * masks.x[n, : len(x)]
        outputs = {}
        for t in reversed(range(len(x))) if reverse else range(len(x)):
            step = max(self.lengths) - 1 - t if reverse else t
            seen = h if masks.h is None else h * masks.h[n]
            gates = weights[f"weight_ih{suffix}"] @ x[t] + weights[f"weight_hh{suffix}"] @ seen
            if self.lstm.bias:
                gates = gates + weights[f"bias_ih{suffix}"] + weights[f"bias_hh{suffix}"]
            i, f, g, o = gates.chunk(4)
            g = g.tanh() if masks.g is None else g.tanh() * masks.g[step, n]
            new_c = f.sigmoid() * c + i.sigmoid() * g
            new_c = new_c if masks.c is None else new_c * masks.c[step, n]
            new_h = o.sigmoid() * new_c.tanh()
            if self.lstm.proj_size:
                new_h = weights[f"weight_hr{suffix}"] @ new_h
            if masks.zones is not None:
                kept_h, kept_c = (zone[step, n].double() for zone in masks.zones)
                new_h, new_c = kept_h * h + (1 - kept_h) * new_h, kept_c * c + (1 - kept_c) * new_c
            h, c = outputs[t], _ = new_h, new_c
        return [torch.stack([outputs[t] for t in range(len(x))]), h, c]


def check(batch: Batch, actual: list[Tensor], truth: list[Tensor]) -> None:
    """Compare outputs, last states and all gradients."""
    torch.testing.assert_close(actual, truth, rtol=1e-9, atol=1e-11)
    leaves = [*batch.sequences, *batch.state, *batch.lstm.parameters()]
    upstream = [torch.randn_like(y) for y in actual]
    got, expected = (torch.autograd.grad(ys, leaves, upstream, materialize_grads=True) for ys in (actual, truth))
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)
