"""Recurrent cells, and the loop over time. Products with the hidden state are passed in as functions."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from .. import backend
from ..draws.bits import is_transformed
from .base import Flipped, Straight
from .lstm import NO_WEIGHT, FlippedLSTM

Product = Callable[[Tensor], Tensor]
State = tuple[Tensor, ...]  # (h,), or (h, c) of an LSTM
WRITTEN_OUT_FOR = (torch.float32,)  # double precision keeps the definition, which can be differentiated twice


class Cell(ABC):
    """The arithmetic of one time step."""

    gates: int  # rows of the weights per hidden unit
    adds: bool  # the products of x and h enter as a sum, so that a bias may be added to either

    @abstractmethod
    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        """Return the next state from W_ih x + b_ih, W_hh h + b_hh and the state."""


@dataclass(frozen=True)
class LSTM(Cell):
    """The cell of an LSTM.

    c may have a wider dtype than the rest: half precision would lose what c adds up over time. `update` changes the
    candidate g before it enters c, and `keep` changes the new c.
    """

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
    """The cell of a GRU."""

    gates = 3
    adds = False

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
        reset, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
        n = (xn + reset * hn).tanh()
        return (n + z * (state[0] - n),)


@dataclass(frozen=True)
class RNN(Cell):
    """The cell of a plain recurrent net."""

    nonlinearity: Literal["tanh", "relu"] = "tanh"
    gates = 1
    adds = True

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        return ((x + h).tanh() if self.nonlinearity == "tanh" else (x + h).relu(),)


@dataclass
class Scan:
    """One layer in one direction.

    `alive` is (time, N, 1). A sequence that has ended keeps its state.
    """

    cell: Cell
    product: Product
    project: Product | None = None  # of an LSTM with projections
    reverse: bool = False

    def __call__(self, x: Tensor, state: State, alive: Tensor | None = None) -> tuple[Tensor, State]:
        """Return the outputs (time, N, H) and the last state, from W_ih x + b_ih as (N, time, rows)."""
        fused = self._run_fused(x, state, alive)
        if fused is not None:
            return fused[0], fused[1:]
        steps = x.unbind(1)
        outputs: list[Tensor] = [state[0]] * len(steps)
        for t in reversed(range(len(steps))) if self.reverse else range(len(steps)):
            new_state = self.cell.step(steps[t], self.product(state[0]), state)
            if self.project is not None:
                new_state = (self.project(new_state[0]), *new_state[1:])
            if alive is not None:
                pairs = zip(new_state, state, strict=True)
                new_state = tuple(torch.where(alive[t], new, last) for new, last in pairs)
            outputs[t], state = new_state[0], new_state
        return torch.stack(outputs), state

    def _run_fused(self, x: Tensor, state: State, alive: Tensor | None) -> tuple[Tensor, ...] | None:
        """Run all steps of a plain LSTM at once, by a kernel or by `FlippedLSTM`, or return None if neither serves."""
        product, lengths = self.product, () if alive is None else (alive,)
        if self.cell != LSTM() or self.project is not None or not x.numel() or is_transformed() or backend.is_eager():
            return None
        if isinstance(product, Straight):
            kernel = one_weight_kernel(x, x.dtype, len(x), x.shape[-1])
            return kernel and kernel(x, *state, product.weight, product.bias, self.reverse, *lengths)
        if not isinstance(product, Flipped) or product.delta_op is not product.op or len(product.r) != len(x):
            return None
        mean, delta, bias, r, s = product.mean, product.delta, product.bias, product.r, product.s
        kernel = backend.chosen("lstm", x, x.dtype)
        if kernel is not None:
            return kernel(x, *state, mean, delta, bias, r, s, self.reverse, *lengths)
        if x.dtype not in WRITTEN_OUT_FOR or alive is not None:
            return None
        return FlippedLSTM.apply(x, *state, *NO_WEIGHT, mean, delta, r, s, bias, self.reverse)  # pyright: ignore[reportReturnType]


def one_weight_kernel(x: Tensor, dtype: torch.dtype, sequences: int, rows: int) -> Callable[..., Any] | None:
    """Return the kernel for all steps of a plain LSTM whose sequences share a weight of `rows` rows, if there is one.

    cuDNN serves the other cases.
    """
    return backend.chosen("shared_lstm", x, dtype, sequences, rows, required=False)


def takes_input(cell: Cell, x: Tensor, alive: Tensor | None) -> bool:
    """Return True if `FlippedLSTM` serves this layer from x (N, time, features) on: a plain LSTM in fp32 on a CPU."""
    is_plain = cell == LSTM() and alive is None and type(x) is Tensor
    if not is_plain or not x.is_cpu or x.dtype not in WRITTEN_OUT_FOR:
        return False
    return x.numel() > 0 and not (is_transformed() or backend.is_eager() or backend.asks_for_kernels())
