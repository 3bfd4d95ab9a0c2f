"""Processes are timed on the members that the device evaluates."""

from typing import Any

import pytest
import torch

from flipout.errors import InvalidArgument
from flipout.experiments.es.scaling import claims
from flipout.experiments.es.scaling.presets import ES_SCALING
from flipout.experiments.es.scaling.times import ScalingConfig, at_once, share
from flipout.experiments.running.folder import open_run
from flipout.experiments.running.progress import RunProgress
from flipout.experiments.running.results import MUST_HOLD

SMOKE: Any = ES_SCALING.presets["smoke"]


def test_processes_evaluate_the_members_of_the_device(tmp_path):
    training = SMOKE.sizes["FC 32"]
    with open_run(tmp_path, {"seed": 3, "device": "cpu"}, resume=False, progress=RunProgress()) as run:
        threads = torch.get_num_threads()
        seconds, fitness = share(training, 6, 2, 3)
        torch.set_num_threads(threads)
        here = at_once(training, 6, run)
    assert len(seconds) == 2
    torch.testing.assert_close(here, torch.tensor(fitness, dtype=torch.float64))
    assert len(set(fitness)) == 6
    check = claims.same_fitness({"one": 0.0, "other": 1.0})
    assert (check.kind, check.holds, check.value) == (MUST_HOLD, False, 1.0)


def test_bad_settings():
    with pytest.raises(InvalidArgument, match="rounds=1"):
        ScalingConfig(rounds=1)
    with pytest.raises(InvalidArgument, match="at least one size"):
        ScalingConfig(widths=())
