"""The forms in which a recurrent layer takes sequences, and the loop over layers and directions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ..errors import InvalidInput
from .recurrent import State

# x (N, time, features), the suffix of the Parameters' names, the state, reverse, alive → outputs (time, N, H), state
Direction = Callable[[Tensor, str, State, bool, Tensor | None], tuple[Tensor, State]]


@dataclass(frozen=True)
class Sequences:
    """A batch of sequences in the order in which they were given. The batch comes first."""

    x: Tensor  # (N, time, features)
    alive: Tensor | None  # (time, N, 1): whether a sequence has not ended yet; None if all have the same length
    batch_first: bool
    batched: bool = True
    packed: PackedSequence | None = None

    @classmethod
    def of(cls, input: Tensor | PackedSequence, batch_first: bool) -> "Sequences":
        if isinstance(input, PackedSequence):
            rows = int(input.batch_sizes.sum())
            if rows != len(input.data):
                raise InvalidInput(
                    f"A PackedSequence of {len(input.data)} rows with batch_sizes for {rows}; expected equal numbers. "
                    "Make it with torch.nn.utils.rnn.pack_padded_sequence or pack_sequence."
                )
            x, lengths = pad_packed_sequence(input, batch_first=True)
            alive = torch.arange(x.shape[1]).unsqueeze(1) < lengths
            return cls(x, alive.unsqueeze(2).to(x.device), batch_first, packed=input)
        if input.dim() == 2:
            return cls(input.unsqueeze(0), None, batch_first, batched=False)
        return cls(input if batch_first else input.transpose(0, 1), None, batch_first)

    def outputs(self, y: Tensor) -> Tensor | PackedSequence:
        """Return y (N, time, features) in the form of the input."""
        if self.packed is None:
            return y.squeeze(0) if not self.batched else y if self.batch_first else y.transpose(0, 1)
        order, sizes = self.packed.sorted_indices, self.packed.batch_sizes
        rows = y if order is None else y.index_select(0, order)
        data = torch.cat([rows[:size, t] for t, size in enumerate(sizes.tolist())])
        return PackedSequence(data, sizes, order, self.packed.unsorted_indices)

    def check_state(self, label: str, parts: Sequence[Any], count: int, widths: Sequence[int]) -> None:
        """Refuse a state that is not (count, N, width) for each width; `count` is layers · directions."""
        rows = (len(self.x),) if self.batched else ()
        meaning = (
            f": layers × directions, then the {len(self.x)} sequence(s) of this input, then the width. For another "
            "batch start from hx=None."
        )
        check_state_shapes(label, parts, [(count, *rows, width) for width in widths], meaning)

    def states(self, state: State) -> State:
        """Return a state (count, N, width) in the form of the input."""
        return state if self.batched else tuple(part.squeeze(1) for part in state)


def check_state_shapes(label: str, parts: Sequence[Any], shapes: Sequence[tuple[int, ...]], meaning: str) -> None:
    """Refuse a state whose parts do not have these shapes."""
    found = [tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in parts]
    if found != shapes:
        raise InvalidInput(f"{label}: hx of shapes {found}; expected {shapes}{meaning}")


def traverse(rnn: nn.RNNBase, x: Tensor, state: State, alive: Tensor | None, direction: Direction):
    """Return the outputs (N, time, features) of the last layer, and the last state of each layer and direction."""
    last_states: list[State] = []
    for layer in range(rnn.num_layers):
        outputs = []
        for reverse in (False, True)[: 1 + rnn.bidirectional]:
            suffix = f"_l{layer}{'_reverse' if reverse else ''}"
            first = tuple(part[len(last_states)] for part in state)
            y, last = direction(x, suffix, first, reverse, alive)
            outputs.append(y)
            last_states.append(last)
        x = (outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)).transpose(0, 1)
        if rnn.dropout and layer + 1 < rnn.num_layers:
            x = F.dropout(x, rnn.dropout, rnn.training)
    return x, tuple(torch.stack(parts) for parts in zip(*last_states, strict=True))
