"""The LSTM with its backward pass written out against its definition, `Scan` under autograd, on the same numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from flipout.backend import using
from flipout.ops import lstm_steps
from flipout.ops.base import Flipped, Straight
from flipout.ops.linear import Linear
from flipout.ops.lstm import NO_WEIGHT, FlippedLSTM, PlainWeight
from flipout.ops.lstm_steps import Weight
from flipout.ops.recurrent import LSTM, Scan
from tests.poison import poisoned


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
        with using("eager"):
            y, last = Scan(LSTM(), product_of(self.recurrent, self.bias), reverse=self.reverse)(x, self.state)
        return y, *last


def check(case: Case, kept: Callable[[list[Tensor]], list[Tensor]] = list) -> None:
    """Equal outputs, and equal gradients of every leaf for a gradient of every output."""
    actual, truth = case.written_out(), case.definition()
    upstream = [torch.randn_like(y) for y in truth]
    torch.testing.assert_close(list(actual), list(truth), rtol=1e-10, atol=1e-10)
    got, expected = (torch.autograd.grad(kept(list(ys)), case.leaves, kept(upstream)) for ys in (actual, truth))
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


sizes = st.integers(1, 6)


@given(
    st.builds(
        dict, count=sizes, steps=sizes, features=sizes, width=sizes, has_bias=st.booleans(), reverse=st.booleans(),
        inputs=st.sampled_from(["noisy", "plain", "product"]), batch_first=st.booleans(),
    )
)  # fmt: skip
def test_it_is_the_definition(options: dict[str, Any]) -> None:
    check(Case(**options))


@pytest.mark.parametrize("reverse", [False, True])
def test_slopes_are_made_for_a_few_steps_at_a_time(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(steps=7, reverse=reverse)
    for numbers in (1, 3 * 20, 2 * 3 * 20, 100 * 3 * 20):  # one step at a time, one, two, all
        monkeypatch.setattr(lstm_steps, "_CACHED", numbers)
        check(case)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("inputs", ["noisy", "plain", "product"])
def test_every_number_is_written_before_it_is_read(inputs: str, reverse: bool) -> None:
    with poisoned():
        check(Case(inputs=inputs, reverse=reverse))


class Wrapped(Tensor):
    """A tensor that numpy is not asked to read."""


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("inputs", ["noisy", "plain", "product"])
def test_torch_computes_what_numpy_cannot_read(inputs: str, reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    library = lstm_steps._library
    assert library(torch.ones(2).as_subclass(Wrapped))[0] is torch
    assert library(torch.ones(2))[0] is not torch
    monkeypatch.setattr(lstm_steps, "_library", lambda *tensors: library(torch.ones(2).as_subclass(Wrapped)))
    check(Case(inputs=inputs, reverse=reverse))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_gradient_of_one_output_alone(which: int) -> None:
    check(Case(), lambda ys: ys[which : which + 1])


def test_gradients_that_are_one_number_in_memory() -> None:
    case = Case()
    grads = [torch.autograd.grad(f()[0].sum(), case.leaves) for f in (case.written_out, case.definition)]
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-10)


def test_gradients_that_torch_has_not_negated_yet() -> None:
    """A view of a conjugate's imaginary part is negated when it is read, which numpy does not do."""
    case = Case()
    actual, truth = case.written_out(), case.definition()
    upstream = [torch.randn(y.shape, dtype=torch.complex128).conj().imag for y in truth]
    assert all(grad.is_neg() for grad in upstream)
    grads = [torch.autograd.grad(ys, case.leaves, upstream) for ys in (actual, truth)]
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-10)


def test_two_backward_passes_of_one_graph() -> None:
    case = Case()
    y = case.written_out()[0]
    upstream = torch.randn_like(y)
    first, second = (torch.autograd.grad(y, case.leaves, upstream, retain_graph=True) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_without_gradients() -> None:
    case = Case()
    with torch.no_grad():
        actual = case.written_out()
    assert not any(y.requires_grad for y in actual)
    torch.testing.assert_close(list(actual), list(case.definition()), rtol=1e-10, atol=1e-10)
    with torch.inference_mode():
        torch.testing.assert_close(list(case.written_out()), list(actual))


def test_only_what_is_asked_for_is_differentiated() -> None:
    case = Case()
    expected = torch.autograd.grad(case.definition()[0].square().sum(), case.recurrent.delta)
    assert case.inputs is not None
    for part in (case.leaf_input, *case.state, *case.inputs[:2], case.recurrent.mean, case.bias):
        part.requires_grad_(False)  # pyright: ignore
    actual = torch.autograd.grad(case.written_out()[0].square().sum(), case.recurrent.delta)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def test_what_is_not_finite_stays_with_its_sequence() -> None:
    case = Case()
    with torch.no_grad():
        case.leaf_input[1] = torch.inf
    y, h, c = case.written_out()
    expected = case.definition()
    for actual, truth in zip((y, h, c), expected, strict=True):
        torch.testing.assert_close(actual, truth, rtol=1e-10, atol=1e-10, equal_nan=True)
    assert y[:, [0, 2]].isfinite().all()
    y.sum().backward()


def test_an_output_may_be_changed_in_place() -> None:
    case = Case()
    expected = torch.autograd.grad((case.written_out()[0] * 2).square().sum(), case.leaves)
    y = case.written_out()[0]
    y *= 2
    torch.testing.assert_close(torch.autograd.grad(y.square().sum(), case.leaves), expected)
