"""No test here uses the user's cache or the network; `real_data` is the folder of the published data sets."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flipout.experiments.data import files
from flipout.experiments.report.page import write_page
from flipout.experiments.running.folder import open_run
from flipout.experiments.running.progress import RunProgress
from flipout.experiments.running.runs import Run
from tests.experiments.report.pages import CHECKS, LAYERS, finished, seen_in

REAL = Path(os.environ.get(files.VARIABLE) or Path(__file__).parents[3] / "shared" / "data")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.delenv(files.VARIABLE, raising=False)
    monkeypatch.setattr(files, "user_cache", lambda: folder)
    for variable in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")  # the discard port: no test leaves this machine
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    return folder


@pytest.fixture
def real_data(monkeypatch) -> Path:
    if not REAL.is_dir():
        pytest.skip(f"needs the published data sets: set {files.VARIABLE} to their folder (looked for ../shared/data)")
    monkeypatch.setenv(files.VARIABLE, str(REAL))
    return REAL


@pytest.fixture
def run(tmp_path) -> Iterator[Run]:
    with open_run(tmp_path, {"seed": 0, "device": "cpu"}, resume=False, progress=RunProgress()) as opened:
        yield opened


@pytest.fixture
def page(tmp_path) -> Path:
    """The report of one run, next to its folder."""
    write_page([finished(tmp_path / "variance-fc-quick")], tmp_path / "report.html")
    return tmp_path / "report.html"


@pytest.fixture
def several(tmp_path) -> Path:
    """The report of four runs, three of them of one experiment, with a row for each of many layers."""
    layers = {f"conv{i}: γ": f"{i}.5e-05 ± 2.0e-06" for i in range(1, 13)}
    seen = (*seen_in("variance", CHECKS), *LAYERS)
    settings = {"draws": 10, "pretraining": {"hidden": [16], "accuracy": 0.9}}
    folders = [
        finished(tmp_path / "results" / "variance-fc", settings=settings, measured=layers, checks=seen),
        finished(tmp_path / "runs" / "variance-fc", settings={**settings, "seed": 1}, checks=(*CHECKS[:2], *LAYERS)),
        finished(tmp_path / "runs" / "long", settings={"pretraining": {"hidden": [32, 32], "accuracy": 0.9}}),
        finished(tmp_path / "theorem", "theorem"),
    ]
    write_page(folders, tmp_path / "several.html")
    return tmp_path / "several.html"
