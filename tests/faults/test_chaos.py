"""Whatever happens to workers, runs and drivers, the result is that of an undisturbed run bit for bit.

`make chaos` does more of this, with real Ray workers and ranks.
"""

import os
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from flipout import es
from flipout.es import _ray_pool
from flipout.es._ray_pace import WorkerPace
from tests.es.toys import strategy
from tests.faults.chaotic_ray import FATES, ChaoticRay
from tests.faults.kills import of_drivers, of_runs

forks = pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="needs a safe fork")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
def test_a_fleet_disturbed_for_200_generations(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    ray = ChaoticRay(seed, lambda: evolution.generation)
    monkeypatch.setattr(_ray_pool, "import_ray", lambda: ray)
    monkeypatch.setattr(WorkerPace, "tick", 0.0)
    monkeypatch.setattr(WorkerPace, "hung", 2)
    fleet = es.RayFleet(2, patience=1.0, timeout=0.01)
    evolution, draw = strategy(fleet=fleet), random.Random(seed)
    while evolution.generation < 200:
        if draw.random() < 0.1:
            fleet.workers = draw.randint(2, 4)  # some leave, or join
        evolution.step()
    expected = strategy(fleet=es.Local(members=4))
    expected.run(200)
    pairs = zip(evolution.model.state_dict().values(), expected.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    happened = Counter(ray.fates.values())
    assert all(happened[fate] >= 10 for fate in FATES), happened


@forks
def test_runs_killed_at_drawn_moments(tmp_path: Path) -> None:
    found = of_runs(tmp_path, 8, random.Random(1))
    assert found.kills == 8
    assert found.differ == 0


@forks
def test_drivers_killed_at_drawn_moments(tmp_path: Path) -> None:
    found = of_drivers(tmp_path, 4, random.Random(2))
    assert found.kills == 4
    assert found.differ == 0
