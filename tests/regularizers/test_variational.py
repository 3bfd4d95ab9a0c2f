"""VariationalLSTM against the loop: one mask per sequence, for all time steps."""

from typing import Any

import pytest
import torch
from torch import Tensor

from flipout.regularizers import VariationalLSTM
from tests.regularizers.loops import LENGTHS, OPTIONS, SIZES, Batch, Masks, check
from tests.statistics import assert_mean, assert_probability


@pytest.mark.parametrize("form", LENGTHS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_loop(options: dict[str, Any], form: str, drawn: list[Tensor]) -> None:
    batch = Batch(VariationalLSTM(*SIZES, p_input=0.4, p_hidden=0.3, **options).double(), form)
    actual = batch.run()
    scans = batch.lstm.num_layers * (1 + batch.lstm.bidirectional)
    assert len(drawn) == 2 * scans
    assert all(mask.shape[:2] == (len(batch.lengths), 1) for mask in drawn[::2])
    check(batch, actual, batch.loop([Masks(x=x, h=h) for x, h in zip(drawn[::2], drawn[1::2], strict=True)]))


def test_one_of_the_two(drawn: list[Tensor]) -> None:
    batch = Batch(VariationalLSTM(*SIZES, 2, p_input=0.5, p_hidden=0.0).double(), "packed")
    actual = batch.run()
    check(batch, actual, batch.loop([Masks(x=mask) for mask in drawn]))
    drawn.clear()
    batch = Batch(VariationalLSTM(*SIZES, 2, p_input=0.0, p_hidden=0.5).double(), "packed")
    actual = batch.run()
    check(batch, actual, batch.loop([Masks(h=mask) for mask in drawn]))


def test_every_sequence_and_every_call_has_its_own_masks(drawn: list[Tensor]) -> None:
    lstm = VariationalLSTM(20, 30, p_input=0.35, p_hidden=0.2)
    x = torch.randn(2, 1, 20).expand(2, 200, 20)
    y, again = lstm(x)[0], lstm(x)[0]
    assert len(y[0].unique(dim=0)) == 200
    assert not (y == again).all(-1).any()
    for x_mask, h_mask in (drawn[:2], drawn[2:]):
        assert_probability(int((x_mask == 0).sum()), x_mask.numel(), 0.35)
        assert_probability(int((h_mask == 0).sum()), h_mask.numel(), 0.2)
        assert set(h_mask.unique().tolist()) == {0.0, 1.25}


def test_the_mean_output_is_the_plain_one() -> None:
    """In one step, with weights so small that the layer is linear in x and in h."""
    lstm = VariationalLSTM(3, 4, p_input=0.35, p_hidden=0.2).double()
    with torch.no_grad():
        for name in ("weight_ih_l0", "weight_hh_l0"):
            lstm.get_parameter(name).mul_(1e-4)
        x, h, c = (torch.randn(size).double().expand(1, 20_000, size) for size in (3, 4, 4))
        y, plain = lstm(x, (h, c))[0], lstm.eval()(x[:, :1], (h[:, :1].contiguous(), c[:, :1].contiguous()))[0]
    assert_mean(y[0], plain[0, 0])
