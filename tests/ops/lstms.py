"""LSTMs of any layout, written out and as a definition."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flipout.backend import choosing
from flipout.ops.base import Flipped, Straight
from flipout.ops.linear import Linear
from flipout.ops.lstm import NO_WEIGHT, FlippedLSTM, PlainWeight
from flipout.ops.lstm_steps import Weight
from flipout.ops.recurrent import LSTM, Scan


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def signs(*shape: int) -> Tensor:
    return torch.randint(2, shape).double() * 2 - 1


def weight_of(count: int, rows: int, columns: int) -> Weight:
    return Weight(leaf(rows, columns), leaf(rows, columns), signs(count, rows), signs(count, columns))


def product_of(weight: Weight | PlainWeight, bias: Tensor | None = None) -> Any:
    op = Linear(weight.mean.shape[1], weight.mean.shape[0])
    if isinstance(weight, PlainWeight):
        return Straight(op, weight.mean, bias)
    return Flipped(op, op, *weight, bias)


class Case:
    """The inputs of one call."""

    def __init__(
        self, count: int = 3, steps: int = 4, features: int = 2, width: int = 5, inputs: str = "noisy",
        has_bias: bool = True, reverse: bool = False, batch_first: bool = True,
    ) -> None:  # fmt: skip
        self.inputs = {
            "noisy": weight_of(count, 4 * width, features),
            "plain": PlainWeight(leaf(4 * width, features)),
            "product": None,
        }[inputs]
        columns = 4 * width if self.inputs is None else features
        self.leaf_input = leaf(count, steps, columns) if batch_first else leaf(steps, count, columns)
        self.x = self.leaf_input if batch_first else self.leaf_input.transpose(0, 1)
        self.state, self.recurrent = (leaf(count, width), leaf(count, width)), weight_of(count, 4 * width, width)
        self.bias, self.reverse = leaf(4 * width) if has_bias else None, reverse

    @property
    def leaves(self) -> list[Tensor]:
        parts = (self.leaf_input, *self.state, *(self.inputs or ()), *self.recurrent, self.bias)
        return [part for part in parts if part is not None and part.requires_grad]

    def written_out(self) -> tuple[Tensor, ...]:
        weights = *(self.inputs or NO_WEIGHT), *self.recurrent
        return FlippedLSTM.apply(self.x, *self.state, *weights, self.bias, self.reverse)  # pyright: ignore

    def definition(self) -> tuple[Tensor, ...]:
        x = self.x if self.inputs is None else product_of(self.inputs)(self.x)
        with choosing("eager"):
            y, last = Scan(LSTM(), product_of(self.recurrent, self.bias), reverse=self.reverse)(x, self.state)
        return y, *last


def check(case: Case, kept: Callable[[list[Tensor]], list[Tensor]] = list) -> None:
    """Equal outputs, and equal gradients of every leaf for a gradient of every output."""
    actual, truth = case.written_out(), case.definition()
    upstream = [torch.randn_like(y) for y in truth]
    torch.testing.assert_close(list(actual), list(truth), rtol=1e-10, atol=1e-10)
    got, expected = (torch.autograd.grad(kept(list(ys)), case.leaves, kept(upstream)) for ys in (actual, truth))
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
