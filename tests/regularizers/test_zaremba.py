"""ZarembaLSTM against the loop, and where its masks fall."""

from typing import Any

import pytest
import torch
from torch import Tensor

from flipout.regularizers import ZarembaLSTM
from tests.regularizers.loops import LENGTHS, OPTIONS, SIZES, Batch, Masks, check
from tests.statistics import assert_mean, assert_probability


@pytest.mark.parametrize("form", LENGTHS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_loop(options: dict[str, Any], form: str, drawn: list[Tensor]) -> None:
    batch = Batch(ZarembaLSTM(*SIZES, dropout=0.4, **options).double(), form)
    actual = batch.run()
    directions = 1 + batch.lstm.bidirectional
    assert len(drawn) == batch.lstm.num_layers + 1
    masks = [Masks(x=mask) for mask in drawn[:-1] for _ in range(directions)]
    check(batch, actual, batch.loop(masks, drawn[-1]))


def test_masks_are_fresh_at_every_step_and_never_fall_on_recurrent_connections(drawn: list[Tensor]) -> None:
    lstm = ZarembaLSTM(3, 4, 2, dropout=0.25)
    lstm(torch.randn(50, 100, 3))
    assert [tuple(mask.shape) for mask in drawn] == [(100, 50, 3), (100, 50, 4), (100, 50, 4)]
    for mask in drawn:
        assert_probability(int((mask == 0).sum()), mask.numel(), 0.25)
        assert_probability(int(((mask[:, 0] == 0) & (mask[:, 1] == 0)).sum()), mask[:, 0].numel(), 0.25**2)
        assert_probability(int(((mask[0] == 0) & (mask[1] == 0)).sum()), mask[0].numel(), 0.25**2)


def test_the_state_handed_on_is_not_dropped() -> None:
    lstm = ZarembaLSTM(3, 4, dropout=0.5)
    y, (h, _) = lstm(torch.randn(6, 5, 3))
    kept = y[-1] != 0
    assert 0 < kept.sum() < kept.numel()
    assert h.all()
    torch.testing.assert_close(y[-1][kept], 2 * h[0][kept])


def test_the_mean_output_is_the_plain_one() -> None:
    """In one step, with input weights so small that the layer is linear in x."""
    lstm = ZarembaLSTM(3, 4, dropout=0.3).double()
    with torch.no_grad():
        lstm.get_parameter("weight_ih_l0").mul_(1e-4)
        x = torch.randn(3).double().expand(1, 20_000, 3)
        y, plain = lstm(x)[0], lstm.eval()(x[:, :1])[0]
    assert_mean(y[0], plain[0, 0])
