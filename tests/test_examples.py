"""Every script under examples/ runs, in small; each stays short enough to be read at once."""

import runpy
import sys
from pathlib import Path

import pytest

from flipout.errors import MissingExtra

EXAMPLES = {path.stem: path for path in (Path(__file__).parents[1] / "examples").glob("*.py")}
SMALL = {
    "active_learning": "--rounds 2 --steps 20 --seeds 1",
    "bayesian_regression": "--steps 40 --points 40 --figure curve.svg",
    "es_cartpole": "--generations 2 --population 40 --steps 20 --folder checkpoints",
    "variance_curve": "--draws 6 --repeats 2 --sizes 1 16 --figure curve.svg",
    "weight_noise_text": "--characters 2000 --units 16 --epochs 1 --noise dropconnect",
}


def test_each_is_run() -> None:
    assert EXAMPLES.keys() == SMALL.keys()


@pytest.mark.parametrize("name", SMALL)
def test_example(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = EXAMPLES[name]
    assert len(path.read_text().splitlines()) <= 80
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), *SMALL[name].split()])
    try:
        runpy.run_path(str(path), run_name="__main__")
    except MissingExtra as error:
        pytest.skip(str(error))
    assert len(capsys.readouterr().out.splitlines()) >= 1
    assert ("--figure" in SMALL[name]) == (tmp_path / "curve.svg").exists()
