"""Figures are drawn again from the folder of a run: nothing is run, and nothing else changes."""

import json
from pathlib import Path

import pytest

from flipout.errors import DataError, RunError
from flipout.experiments.registry import EXPERIMENTS
from flipout.experiments.report.redraw import redraw_figures
from tests.experiments.toy_experiment import TOY, ToyConfig, content


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A run whose figure is lost, with a size and a device that are not the preset's."""
    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)
    TOY.run(ToyConfig(size=5), tmp_path / "toy", preset="smoke")
    config = json.loads((tmp_path / "toy" / "config.json").read_text())
    (tmp_path / "toy" / "config.json").write_text(json.dumps({**config, "device": "cuda:7"}))
    (tmp_path / "toy" / "checksums.jsonl").unlink()  # as in runs of early versions
    return tmp_path / "toy"


def test_lost_figures_come_back_and_nothing_else_changes(folder):
    before, environment = content(folder), (folder / "environment.json").read_bytes()
    for path in (folder / "figures").iterdir():
        path.unlink()
    redraw_figures(folder)
    assert content(folder) == before
    assert (folder / "environment.json").read_bytes() == environment


def test_old_figures_are_replaced_and_the_list_of_the_result_is_kept_right(folder):
    before = content(folder)
    held = json.loads((folder / "result.json").read_text())
    del held["checks"][0]["id"]  # as older results are: not for a drawing to change
    held["figures"] = [{"name": "older", "caption": "gone"}]
    (folder / "result.json").write_text(json.dumps(held))
    (folder / "figures" / "curve.svg").write_text("old")
    redraw_figures(folder)
    assert content(folder)["figures/curve.svg"] == before["figures/curve.svg"]
    now = json.loads((folder / "result.json").read_text())
    assert now == {**held, "figures": [{"name": "curve", "caption": "β against N"}]}


def test_what_is_missing_is_named_and_figures_stay(folder):
    (folder / "pieces" / "measure.3.json").unlink()
    before = content(folder)
    with pytest.raises(RunError, match=r"measure\.3\.json is not there.*cannot be drawn again"):
        redraw_figures(folder)
    assert content(folder) == before


@pytest.mark.parametrize("missing", ["config.json", "result.json"])
def test_an_unfinished_run_is_refused(folder, missing):
    (folder / missing).unlink()
    with pytest.raises(DataError, match=f"is not a finished run.*{missing}"):
        redraw_figures(folder)


def test_an_experiment_that_is_not_here_is_refused(folder, monkeypatch):
    monkeypatch.delitem(EXPERIMENTS, "toy")
    with pytest.raises(DataError, match=r"is not a finished run of an experiment here.*toy"):
        redraw_figures(folder)


def test_a_changed_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)
    folder = tmp_path / "toy"
    TOY.run(ToyConfig(), folder, preset="smoke")
    piece = folder / "pieces" / "measure.0.json"
    piece.write_text(piece.read_text().replace("0.", "0.1", 1))
    with pytest.raises(RunError, match=r"measure\.0\.json is broken \(.* bytes with SHA-256 .* found; expected"):
        redraw_figures(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(DataError, match=r"\(Mismatch: config\.json: 2 bytes with SHA-256"):
        redraw_figures(folder)


def test_work_that_fails_on_old_files_names_those_that_nobody_checked(folder):
    (folder / "pieces" / "measure.0.json").write_text("[]")
    with pytest.raises(DataError, match=r"TypeError.*have no checksum .*: pieces/measure\.0\.json"):
        redraw_figures(folder)
