"""Training lowers what a curve shows, and a level that no curve reaches has no time."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from flipout.experiments.es.curves import EsCurve, trained
from flipout.experiments.training.supervised import prepare
from tests.experiments.es.toys import SMALL, curve


@pytest.mark.parametrize("method", ["FlipES", "backprop"])
def test_training_lowers_loss_and_error(run, method):
    config = replace(SMALL, hidden=(16,), batch=64, updates=40)
    prepared = prepare(config, run)
    run._piece = "here"
    learned = EsCurve(**trained(config, prepared, method, 200, 0, 500, run))
    assert learned.loss[-1] < 0.6 * learned.loss[0]
    assert learned.test_error[-1] < 0.7 * learned.test_error[0]
    assert (learned.iterations[0], learned.iterations[-1]) == (0, 40)
    assert learned.name == ("backprop" if method == "backprop" else "FlipES 200")


def test_no_seed_reaches_what_is_not_there():
    never: Tensor = torch.tensor(curve("FlipES", 0, 10.0).reached("loss", 0.0))
    assert float(never) == math.inf
