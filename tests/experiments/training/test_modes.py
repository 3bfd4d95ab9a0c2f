"""Eval mode for a while, after which each module has its own mode again."""

import pytest
from torch import nn

from flipout.experiments.training.modes import in_eval_mode


def fail(model: nn.Module) -> None:
    assert not any(module.training for module in model.modules())
    raise ZeroDivisionError


def test_each_module_gets_its_mode_back() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.BatchNorm1d(2))
    model[2].eval()
    with pytest.raises(ZeroDivisionError), in_eval_mode(model):
        fail(model)
    assert [module.training for module in model.modules()] == [True, True, True, False]
