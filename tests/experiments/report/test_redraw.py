"""Figures are drawn again from the folder of a run: nothing is run, and nothing else changes."""

import json
from pathlib import Path

import pytest

from flipout.errors import DataError, RunError
from flipout.experiments.registry import EXPERIMENTS
from flipout.experiments.report.redraw import redraw
from tests.experiments.toy_experiment import TOY, ToyConfig, content


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A run whose figure is lost, with a size and a device that are not the preset's."""
    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)
    TOY.run(ToyConfig(size=5), tmp_path / "toy", preset="smoke")
    config = json.loads((tmp_path / "toy" / "config.json").read_text())
    (tmp_path / "toy" / "config.json").write_text(json.dumps({**config, "device": "cuda:7"}))
    return tmp_path / "toy"


def test_lost_figures_come_back_and_nothing_else_changes(folder):
    before, environment = content(folder), (folder / "environment.json").read_bytes()
    for path in (folder / "figures").iterdir():
        path.unlink()
    redraw(folder)
    assert content(folder) == before
    assert (folder / "environment.json").read_bytes() == environment


def test_old_figures_are_replaced_and_the_list_of_the_result_is_kept_right(folder):
    before = content(folder)
    held = json.loads((folder / "result.json").read_text())
    del held["checks"][0]["id"]  # as older results are: not for a drawing to change
    held["figures"] = [{"name": "older", "caption": "gone"}]
    (folder / "result.json").write_text(json.dumps(held))
    (folder / "figures" / "curve.svg").write_text("old")
    redraw(folder)
    assert content(folder)["figures/curve.svg"] == before["figures/curve.svg"]
    now = json.loads((folder / "result.json").read_text())
    assert now == {**held, "figures": [{"name": "curve", "caption": "β against N"}]}


def test_what_is_missing_is_named_and_figures_stay(folder):
    (folder / "pieces" / "measure.3.json").unlink()
    before = content(folder)
    with pytest.raises(RunError, match=r"measure\.3\.json is not there.*cannot be drawn again"):
        redraw(folder)
    assert content(folder) == before


@pytest.mark.parametrize("missing", ["config.json", "result.json"])
def test_an_unfinished_run_is_refused(folder, missing):
    (folder / missing).unlink()
    with pytest.raises(DataError, match=f"is not a finished run.*{missing}"):
        redraw(folder)


def test_an_experiment_that_is_not_here_is_refused(folder, monkeypatch):
    monkeypatch.delitem(EXPERIMENTS, "toy")
    with pytest.raises(DataError, match=r"is not a finished run of an experiment here.*toy"):
        redraw(folder)
