"""Draws may be computed together or one at a time, each with its own dropout."""

import torch
from torch import nn

import flipout
from tests.variance import regression
from tests.variance.measured import ERRORS, measured


def test_vmapped_and_single_draws_agree() -> None:
    """Single draws use the schemes' own backward passes."""
    for at_once in (1, 64):
        (record,) = measured(batch_sizes=[1], schemes=["flipout"], draws=300, repeats=6, at_once=at_once)
        assert abs(record.variance - regression.variance("flipout", 1)) < ERRORS * record.error


def test_each_draw_has_its_own_dropout() -> None:
    net = flipout.perturb(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)), flipout.Gaussian(0.0))
    data = torch.ones(1, 4), torch.zeros(1, dtype=torch.int64)
    found = flipout.variance.measure(net, nn.functional.cross_entropy, data, batch_sizes=[1], draws=20, repeats=2)
    assert all(r.variance > 0 for r in found)
