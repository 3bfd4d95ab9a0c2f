"""ZoneoutLSTM against the loop, in training and in eval mode."""

from typing import Any

import pytest
import torch
from torch import Tensor

from flipout.regularizers import ZoneoutLSTM
from tests.regularizers.loops import LENGTHS, OPTIONS, SIZES, Batch, Masks, check
from tests.statistics import assert_mean, assert_probability


@pytest.mark.parametrize("form", LENGTHS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_loop(options: dict[str, Any], form: str, drawn: list[Tensor]) -> None:
    batch = Batch(ZoneoutLSTM(*SIZES, zoneout_h=0.3, zoneout_c=0.5, **options).double(), form)
    actual = batch.run()
    scans = batch.lstm.num_layers * (1 + batch.lstm.bidirectional)
    assert len(drawn) == 2 * scans
    zones = [[mask == 0 for mask in drawn[2 * scan : 2 * scan + 2]] for scan in range(scans)]
    check(batch, actual, batch.loop([Masks(zones=zone) for zone in zones]))


@pytest.mark.parametrize("form", LENGTHS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_loop_of_eval_mode(options: dict[str, Any], form: str, drawn: list[Tensor]) -> None:
    batch = Batch(ZoneoutLSTM(*SIZES, zoneout_h=0.3, zoneout_c=0.5, **options).double().eval(), form)
    actual = batch.run()
    assert not drawn
    average = Masks(zones=[torch.full((5, 3, 1), z, dtype=torch.float64) for z in (0.3, 0.5)])
    check(batch, actual, batch.loop([average] * 4))


@pytest.mark.parametrize(("zoneout_h", "zoneout_c"), [(0.3, 0.5), (0.0, 0.5), (0.05, 0.0)])
def test_eval_mode_is_the_expectation_of_one_step(zoneout_h: float, zoneout_c: float) -> None:
    lstm = ZoneoutLSTM(3, 4, zoneout_h=zoneout_h, zoneout_c=zoneout_c).double()
    x, h, c = (torch.randn(size).double().expand(1, 4_000, size) for size in (3, 4, 4))
    with torch.no_grad():
        states, average = lstm(x, (h, c))[1], lstm.eval()(x, (h, c))[1]
    assert_mean(torch.cat(states, -1)[0], torch.cat(average, -1)[0, 0])


def test_a_unit_keeps_its_value_or_takes_the_new_one() -> None:
    lstm = ZoneoutLSTM(3, 20, zoneout_h=0.05, zoneout_c=0.5).double()
    plain = torch.nn.LSTM(3, 20).double()
    plain.load_state_dict(lstm.state_dict())
    x, h, c = torch.randn(1, 500, 3).double(), torch.randn(1, 500, 20).double(), torch.randn(1, 500, 20).double()
    states, new = lstm(x, (h, c))[1], plain(x, (h, c))[1]
    for part, last, other, z in zip(states, (h, c), new, (0.05, 0.5), strict=True):
        kept = part == last
        assert_probability(int(kept.sum()), kept.numel(), z)
        torch.testing.assert_close(part[~kept], other[~kept])


def test_masks_are_fresh_at_every_step(drawn: list[Tensor]) -> None:
    ZoneoutLSTM(3, 20, zoneout_h=0.2, zoneout_c=0.5)(torch.randn(2, 200, 3))
    for mask, z in zip(drawn, (0.2, 0.5), strict=True):
        assert_probability(int(((mask[0] == 0) & (mask[1] == 0)).sum()), mask[0].numel(), z**2)
