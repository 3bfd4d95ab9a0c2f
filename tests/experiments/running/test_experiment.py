"""Every experiment has frozen settings at three prices."""

from dataclasses import FrozenInstanceError, asdict, fields, is_dataclass
from typing import Any, get_args

import pytest

from flipout.errors import InvalidArgument
from flipout.experiments.registry import EXPERIMENTS
from flipout.experiments.running.experiment import Config, Preset
from flipout.experiments.running.results import to_json


def frozen(config: Any) -> bool:
    inner = [getattr(config, field.name) for field in fields(config)]
    return config.__dataclass_params__.frozen and all(frozen(value) for value in inner if is_dataclass(value))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_settings_at_three_prices(name):
    experiment = EXPERIMENTS[name]
    assert experiment.name == name
    assert experiment.title
    assert experiment.claim.endswith(".")
    assert tuple(experiment.presets) == tuple(experiment.costs) == get_args(Preset) == ("smoke", "quick", "paper")
    assert all(experiment.costs.values())
    configs = list(experiment.presets.values())
    assert len({type(config) for config in configs}) == 1
    assert len({to_json(asdict(config)) for config in configs}) == 3
    for config in configs:
        assert isinstance(config, Config)
        assert frozen(config)
        with pytest.raises(FrozenInstanceError):
            config.seed = 1  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(InvalidArgument, match=f"{name} has no preset 'huge': use one of smoke, quick, paper"):
        experiment.config("huge")
