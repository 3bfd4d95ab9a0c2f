"""flipout demo: a run, its page, what to look at and what to try."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from msgspec import structs

from flipout.experiments import cli, demo
from flipout.experiments.registry import EXPERIMENTS
from flipout.experiments.running.results import DEMO, MUST_HOLD


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The demo with the settings of the smoke preset, in an empty folder."""
    experiment = EXPERIMENTS[demo.NAME]
    presets = {**experiment.presets, demo.PRESET: experiment.config("smoke")}
    monkeypatch.setitem(EXPERIMENTS, demo.NAME, replace(experiment, presets=presets))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def test_it_runs_reports_and_says_what_next(small, capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert cli.main(["demo"]) == 0
    out = capsys.readouterr().out
    page = Path("runs/demo/report.html").read_text(encoding="utf-8")
    assert '<h2 id="title-run-variance-fc">Figure 1a: gradient variance of a 64-16-10 network on scikit-learn' in page
    assert "MNIST" not in page.partition("</title>")[0]
    assert page.index("<figure") < page.index("The paper’s number beside ours")
    assert "✗" not in out
    assert "See it as a page" not in out  # it is written already
    for said in ("In batches of 64", "  runs/demo/report.html\n", "Try next:", "flipout list"):
        assert said in out
    for line in out.splitlines():
        if line.startswith("  flipout run "):
            assert line.split()[2] in EXPERIMENTS

    capsys.readouterr()
    assert cli.main(["demo"]) == 0  # all is there: nothing is measured again
    assert capsys.readouterr().out == out


def test_a_stopped_demo_goes_on(small, capsys, monkeypatch):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(demo, "write_page", stop)
        assert cli.main(["demo", "--out", "here"]) == 130
    assert capsys.readouterr().err.endswith("continue with:\n  flipout demo --out here\n")
    assert cli.main(["demo", "--out", "here"]) == 0


def test_what_must_hold_is_judged_in_the_demo_too(small):
    result = demo.demo_run(Path("here"))
    assert result.preset == DEMO
    for check in result.checks:
        failed = structs.replace(check, holds=False)
        assert result.can_judge(failed) == (check.kind == MUST_HOLD)


def test_the_figures_of_a_demo_can_be_drawn_again(small):
    assert cli.main(["demo", "--out", "here"]) == 0
    assert cli.main(["report", "here", "--redraw", "--out", "page.html"]) == 0


def test_one_thread_unless_told_otherwise(small, monkeypatch):
    threads = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    demo.demo_run(Path("here"))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    demo.demo_run(Path("here"))
    assert threads == [1]
