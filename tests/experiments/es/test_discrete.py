"""Binary units give backpropagation no gradient."""

from typing import Any

import torch

from flipout.experiments.es.discrete import BINARY, _gradient, _no_gradient
from flipout.experiments.es.presets import ES_DISCRETE
from flipout.experiments.es.training import Task
from flipout.experiments.training.networks import Binary
from flipout.experiments.training.supervised import prepare


def test_binary_units_have_no_gradient(run):
    x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    assert Binary()(x).tolist() == [0, 0, 1]
    assert not Binary()(x).requires_grad
    config: Any = ES_DISCRETE.presets["smoke"]
    prepared = prepare(config.training, run)
    assert _no_gradient(_gradient(config.trainings[BINARY], prepared, run)).holds
    assert not _no_gradient(_gradient(config.training, prepared, run)).holds
    units = [type(module).__name__ for module in Task(config.trainings[BINARY], prepared, 0, run).model]  # pyright: ignore
    assert units == ["Linear", "Binary", "Linear"]
