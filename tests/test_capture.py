"""A captured step does what the step does."""

import pytest
import torch

import flipout
from flipout.errors import InvalidArgument


def test_without_a_device_it_is_the_function_itself() -> None:
    seen = []

    def step(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return 2 * x

    captured = flipout.capture(step)
    x = torch.randn(3)
    for _ in range(5):
        assert torch.equal(captured(x), 2 * x)
    assert len(seen) == 5
    assert all(one is x for one in seen)
    captured.close()


def test_only_tensors_may_be_given() -> None:
    with pytest.raises(InvalidArgument, match=r"given float 0\.1; expected tensors"):
        flipout.capture(lambda x, lr: x * lr)(torch.randn(3), 0.1)  # pyright: ignore[reportArgumentType]


def test_names_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="given s by name; expected tensors in order"):
        flipout.capture(lambda x, s: x * s)(torch.randn(3), s=torch.ones(3))


def test_inputs_may_be_nested_or_missing() -> None:
    def step(x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
        return x if state is None else x + state[0] * state[1]

    captured, x = flipout.capture(step), torch.ones(3)
    assert torch.equal(captured(x, None), x)
    assert torch.equal(captured(x, (2 * x, 3 * x)), 7 * x)
