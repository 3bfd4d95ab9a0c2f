"""Rules: how one layer of an LSTM differs from the plain one in one call."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..ops.recurrent import LSTM, Cell, Product, State

StateRule = Callable[[State, State], State]  # the new state and the last one → the state to go on with


@dataclass(frozen=True)
class Rules:
    """How one layer in one direction differs from the plain LSTM, in one call.

    Each field is None where the layer is plain.

    Example:
        >>> Rules(h=torch.nn.functional.dropout(torch.ones(4, 16), 0.5))
    """

    x: Tensor | None = None  # factor of the inputs, broadcast to (N, time, features)
    h: Tensor | None = None  # factor of the last h, (N, width), before its product with W_hh
    g: Product | None = None  # changes the candidate, (N, hidden_size); called once per step
    c: Product | None = None  # changes the new c, (N, hidden_size), from which h follows; called once per step
    state: StateRule | None = None  # chooses the next state from the new and the last one; called once per step


class StepMasks:
    """A rule for g or c: multiply it by a mask per step, (time or 1, N, hidden_size)."""

    def __init__(self, masks: Tensor, steps: int) -> None:
        self.masks = masks
        self._unused = iter(masks.expand(steps, *masks.shape[1:]).unbind(0))

    def __call__(self, part: Tensor) -> Tensor:
        return part * next(self._unused)


class Zoneout:
    """A rule for the state: h and c keep their last values where `keep_h` and `keep_c`, (time, N, width), are True."""

    def __init__(self, keep_h: Tensor, keep_c: Tensor) -> None:
        self.keep_h, self.keep_c = keep_h, keep_c
        self._unused = zip(keep_h, keep_c, strict=True)

    def __call__(self, new: State, last: State) -> State:
        return tuple(map(torch.where, next(self._unused), last, new))


@dataclass(frozen=True)
class StateRuleCell(Cell):
    """A cell with a rule for its state. The rule sees h as the next step does: projected."""

    cell: Cell
    project: Product | None
    rule: StateRule
    gates = LSTM.gates
    adds = LSTM.adds

    def step(self, x: Tensor, h: Tensor, state: State) -> State:
        h, c = self.cell.step(x, h, state)
        return self.rule((h if self.project is None else self.project(h), c), state)


def suits_kernel(rules: Rules) -> bool:
    """Return True if a kernel can follow these rules: it knows masks and zoneout alone."""
    has_masks = isinstance(rules.g, StepMasks | None) and isinstance(rules.c, StepMasks | None)
    return has_masks and isinstance(rules.state, Zoneout | None)
