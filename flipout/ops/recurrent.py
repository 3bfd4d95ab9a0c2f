"""Recurrent cells and the loop over time. The product with the hidden state is handed in, with its draw at hand."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import backend
from ..draws.bits import is_transformed
from .base import Flipped, Straight
from .lstm import FlippedLSTM

Product = Callable[[Tensor], Tensor]
State = tuple[Tensor, ...]  # (h,), or (h, c) of an LSTM


class Cell(ABC):
    gates: int  # rows of the weights per hidden unit
    adds: bool  # what comes from x and from h enters as their sum; a bias may then stand with either

    @abstractmethod
    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        """The next state from W_ih x + b_ih, W_hh h + b_hh and the state."""


@dataclass(frozen=True)
class LSTM(Cell):
    """c may be wider than the rest: half precision would lose what it adds up over time. `update` may change the
    candidate g before it enters c, and `keep` the c that is made of it."""

    update: Callable[[Tensor], Tensor] | None = None
    keep: Callable[[Tensor], Tensor] | None = None
    gates = 4
    adds = True

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        i, f, g, o = (x + h).to(state[1].dtype).chunk(4, -1)
        g = g.tanh()
        if self.update is not None:
            g = self.update(g)
        c = f.sigmoid() * state[1] + i.sigmoid() * g
        if self.keep is not None:
            c = self.keep(c)
        return (o.sigmoid() * c.tanh()).to(x.dtype), c


@dataclass(frozen=True)
class GRU(Cell):
    gates = 3
    adds = False

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
        reset, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
        n = (xn + reset * hn).tanh()
        return (n + z * (state[0] - n),)


@dataclass(frozen=True)
class RNN(Cell):
    nonlinearity: str = "tanh"
    gates = 1
    adds = True

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        return ((x + h).tanh() if self.nonlinearity == "tanh" else (x + h).relu(),)


@dataclass
class Scan:
    """One layer in one direction. `alive` is (time, N, 1): where a sequence has ended, its state stays as it is."""

    cell: Cell
    product: Product
    project: Product | None = None  # of an LSTM with projections
    reverse: bool = False

    def __call__(self, x: Tensor, state: State, alive: Tensor | None = None) -> tuple[Tensor, State]:
        """Outputs (time, N, H) and the last state, from W_ih x + b_ih as (N, time, rows)."""
        made = self._at_once(x, state, alive)
        if made is not None:
            return made[0], made[1:]
        steps = x.unbind(1)
        outputs: list[Tensor] = [state[0]] * len(steps)
        for t in reversed(range(len(steps))) if self.reverse else range(len(steps)):
            made = self.cell.step(steps[t], self.product(state[0]), state)
            if self.project is not None:
                made = (self.project(made[0]), *made[1:])
            if alive is not None:
                made = tuple(torch.where(alive[t], new, old) for new, old in zip(made, state, strict=True))
            outputs[t], state = made[0], made
        return torch.stack(outputs), state

    def _at_once(self, x: Tensor, state: State, alive: Tensor | None) -> tuple[Tensor, ...] | None:
        """All steps with their backward pass, where that is written out: for a plain LSTM with one weight, or one base
        of flipout."""
        own, lengths = self.product, () if alive is None else (alive,)
        if self.cell != LSTM() or self.project is not None or not x.numel() or is_transformed() or backend.is_eager():
            return None
        if isinstance(own, Straight):
            kernel = one_weight_kernel(x, x.dtype, len(x), x.shape[-1])
            return kernel and kernel(x, *state, own.weight, own.bias, self.reverse, *lengths)
        if not isinstance(own, Flipped) or own.delta_op is not own.op or len(own.r) != len(x):
            return None
        definition: Any = FlippedLSTM.apply if x.dtype == torch.float32 and alive is None else None
        kernel = backend.chosen("lstm", x, x.dtype) or definition
        return kernel and kernel(x, *state, own.mean, own.delta, own.bias, own.r, own.s, self.reverse, *lengths)


def one_weight_kernel(x: Tensor, dtype: torch.dtype, sequences: int, rows: int) -> Callable[..., Any] | None:
    """For all steps of a plain LSTM whose sequences have one weight, of so many rows; there is cuDNN beside it."""
    return backend.chosen("lstm of one weight", x, dtype, sequences, rows, required=False)
