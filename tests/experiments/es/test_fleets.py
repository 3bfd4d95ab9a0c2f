"""A run on workers logs what the live page plots about them."""

import pytest

from flipout import es
from flipout.experiments.es.fleets import fleet_metrics
from flipout.experiments.live.page import live_page
from flipout.experiments.live.state import read_state
from flipout.experiments.running.folder import open_run
from flipout.experiments.running.progress import RunProgress
from tests.es.fake_ray import installed
from tests.es.toys import strategy


def test_workers_that_hang_show_on_the_live_page(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    fake = installed(monkeypatch)
    fleet = es.RayFleet(2, patience=1.0, timeout=0.05)
    evolution = strategy(fleet=fleet)
    fake.held = lambda call: call.actor.number < 2 and call.generation == 2
    with open_run(tmp_path / "run", {"seed": 0, "device": "cpu"}, resume=False, progress=RunProgress()) as run:
        run._piece = "FlipES.0"

        def log(record: es.Generation) -> None:
            run.log(record.generation + 1, **fleet_metrics(fleet, record))

        with pytest.warns(UserWarning, match="has not answered"):
            evolution.run(4, progress=log)
    state = read_state(tmp_path / "run")
    curves = {name: [value for _, value in series["FlipES.0"]] for name, series in state.curves.items()}
    assert set(curves) == {"workers", "members_per_second", "workers_replaced", "groups_rerun", "groups_lost"}
    assert curves["workers"] == [2, 2, 2, 2]
    assert curves["workers_replaced"] == [0, 0, 2, 2]
    assert curves["groups_rerun"][2] >= 1
    assert curves["groups_lost"] == [0, 0, 0, 0]
    assert min(curves["members_per_second"]) > 0
    assert "members_per_second" in live_page(state)


def test_a_fleet_in_this_process_logs_nothing() -> None:
    evolution = strategy(fleet=es.Local())
    assert fleet_metrics(evolution.fleet, evolution.step()) == {}
