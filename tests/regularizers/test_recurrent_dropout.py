"""RecurrentDropoutLSTM against the loop, with a mask per step and with one per sequence, of updates and of states."""

from typing import Any

import pytest
import torch
from torch import Tensor

from flipout.errors import InvalidArgument
from flipout.regularizers import RecurrentDropoutLSTM
from tests.regularizers.loops import LENGTHS, OPTIONS, SIZES, Batch, Masks, check
from tests.statistics import assert_mean, assert_probability


@pytest.mark.parametrize(("on", "per_step"), [("update", True), ("update", False), ("state", True)])
@pytest.mark.parametrize("form", LENGTHS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_loop(options: dict[str, Any], form: str, on: Any, per_step: bool, drawn: list[Tensor]) -> None:
    batch = Batch(RecurrentDropoutLSTM(*SIZES, p=0.4, per_step=per_step, on=on, **options).double(), form)
    actual = batch.run()
    steps = max(batch.lengths)
    assert len(drawn) == batch.lstm.num_layers * (1 + batch.lstm.bidirectional)
    assert all(len(mask) == (steps if per_step else 1) for mask in drawn)
    masks = [mask.expand(steps, -1, -1) for mask in drawn]
    check(batch, actual, batch.loop([Masks(g=mask) if on == "update" else Masks(c=mask) for mask in masks]))


@pytest.mark.parametrize("per_step", [True, False])
def test_masks_of_sequences_and_steps(per_step: bool, drawn: list[Tensor]) -> None:
    lstm = RecurrentDropoutLSTM(3, 40, p=0.25, per_step=per_step)
    y, (_, c) = lstm(torch.randn(2, 1, 3).expand(2, 200, 3))
    assert len(c[0].unique(dim=0)) == 200
    (mask,) = drawn
    assert_probability(int((mask == 0).sum()), mask.numel(), 0.25)
    assert torch.equal(y[0] == 0, mask[0] == 0)  # from c = 0 on, a dropped update leaves nothing
    always_dropped = (mask[0] == 0) & (mask[-1] == 0)
    assert torch.equal(c[0] == 0, always_dropped)
    assert_probability(int(always_dropped.sum()), always_dropped.numel(), 0.25**2 if per_step else 0.25)


def test_a_state_that_is_dropped_is_forgotten(drawn: list[Tensor]) -> None:
    lstm = RecurrentDropoutLSTM(3, 40, p=0.25, on="state")
    y, (_, c) = lstm(torch.randn(5, 20, 3), (torch.randn(1, 20, 40), torch.randn(1, 20, 40)))
    (mask,) = drawn
    assert torch.equal(y == 0, mask == 0)
    assert torch.equal(c[0] == 0, mask[-1] == 0)


def test_states_under_masks_of_their_steps_stay_finite() -> None:
    lstm = RecurrentDropoutLSTM(3, 8, p=0.5, on="state")
    with torch.no_grad():
        lstm.get_parameter("bias_ih_l0")[8:16] += 1
    y, (_, c) = lstm(torch.randn(1000, 4, 3))
    y.sum().backward()
    assert c.abs().max() < 1e4
    assert all(p.grad is not None and p.grad.isfinite().all() for p in lstm.parameters())
    with pytest.raises(InvalidArgument, match=r"expected per_step=True\. .* would grow by 1 / .* at every step"):
        RecurrentDropoutLSTM(3, 8, p=0.5, per_step=False, on="state")


def test_what_is_dropped_has_a_name() -> None:
    with pytest.raises(InvalidArgument, match="on='cell' given; expected one of update, state"):
        RecurrentDropoutLSTM(3, 4, p=0.25, on="cell")  # pyright: ignore[reportArgumentType]


def test_dropout_between_layers_is_torchs(drawn: list[Tensor]) -> None:
    batch = Batch(RecurrentDropoutLSTM(*SIZES, 2, p=0.4, dropout=0.5).double(), "packed")
    actual = batch.run()
    first, between, second = drawn
    check(batch, actual, batch.loop([Masks(g=first), Masks(x=between, g=second)]))


def test_the_mean_of_c_is_the_plain_one() -> None:
    """In one step, c is linear in the mask."""
    lstm = RecurrentDropoutLSTM(3, 4, p=0.25).double()
    x, h, c = (torch.randn(size).double().expand(1, 20_000, size).contiguous() for size in (3, 4, 4))
    with torch.no_grad():
        cells, plain = lstm(x, (h, c))[1][1], lstm.eval()(x, (h, c))[1][1]
    assert_mean(cells[0], plain[0, 0])
