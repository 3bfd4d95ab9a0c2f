"""The LSTM with its backward pass written out against its definition, `Scan` under autograd, on the same numbers."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.lstms import Case, check
from tests.poison import poisoned

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
@pytest.mark.parametrize("inputs", ["noisy", "plain", "product"])
def test_every_number_is_written_before_it_is_read(inputs: str, reverse: bool) -> None:
    with poisoned():
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
