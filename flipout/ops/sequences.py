"""The forms in which a recurrent layer takes sequences, and its way through layers and directions."""

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
    """A batch of sequences with its rows in front, in the order in which they were given."""

    x: Tensor  # (N, time, features)
    alive: Tensor | None  # (time, N, 1): whether a sequence has not ended, where their lengths differ
    batch_first: bool
    batched: bool = True
    packed: PackedSequence | None = None

    @classmethod
    def of(cls, given: Tensor | PackedSequence, batch_first: bool) -> "Sequences":
        if isinstance(given, PackedSequence):
            rows = int(given.batch_sizes.sum())
            if rows != len(given.data):
                raise InvalidInput(
                    f"A PackedSequence of {len(given.data)} rows with batch_sizes for {rows}; expected as many. Make "
                    "it with torch.nn.utils.rnn.pack_padded_sequence or pack_sequence."
                )
            x, lengths = pad_packed_sequence(given, batch_first=True)
            alive = torch.arange(x.shape[1]).unsqueeze(1) < lengths
            return cls(x, alive.unsqueeze(2).to(x.device), batch_first, packed=given)
        if given.dim() == 2:
            return cls(given.unsqueeze(0), None, batch_first, batched=False)
        return cls(given if batch_first else given.transpose(0, 1), None, batch_first)

    def outputs(self, y: Tensor) -> Tensor | PackedSequence:
        """(N, time, features) in the form of the input."""
        if self.packed is None:
            return y.squeeze(0) if not self.batched else y if self.batch_first else y.transpose(0, 1)
        order, sizes = self.packed.sorted_indices, self.packed.batch_sizes
        rows = y if order is None else y.index_select(0, order)
        data = torch.cat([rows[:size, t] for t, size in enumerate(sizes.tolist())])
        return PackedSequence(data, sizes, order, self.packed.unsorted_indices)

    def check_state(self, label: str, given: Sequence[Any], count: int, widths: Sequence[int]) -> None:
        """`count` layers and directions, then the rows of this batch, then a width for each part of the state."""
        rows = (len(self.x),) if self.batched else ()
        about = (
            f": layers × directions, then the {len(self.x)} sequence(s) of this input, then the width. For another "
            "batch start from hx=None."
        )
        check_shapes(label, given, [(count, *rows, width) for width in widths], about)

    def states(self, state: State) -> State:
        return state if self.batched else tuple(part.squeeze(1) for part in state)


def check_shapes(label: str, given: Sequence[Any], shapes: Sequence[tuple[int, ...]], about: str) -> None:
    found = [tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in given]
    if found != shapes:
        raise InvalidInput(f"{label}: hx of shapes {found}; expected {shapes}{about}")


def traverse(rnn: nn.RNNBase, x: Tensor, state: State, alive: Tensor | None, direction: Direction):
    """The outputs (N, time, features) of the last layer, and the last state of each layer and direction."""
    last: list[State] = []
    for layer in range(rnn.num_layers):
        made = []
        for reverse in (False, True)[: 1 + rnn.bidirectional]:
            suffix = f"_l{layer}{'_reverse' if reverse else ''}"
            y, own = direction(x, suffix, tuple(part[len(last)] for part in state), reverse, alive)
            made.append(y)
            last.append(own)
        x = (made[0] if len(made) == 1 else torch.cat(made, -1)).transpose(0, 1)
        if rnn.dropout and layer + 1 < rnn.num_layers:
            x = F.dropout(x, rnn.dropout, rnn.training)
    return x, tuple(torch.stack(parts) for parts in zip(*last, strict=True))
