"""The benchmarks' command line: which cases there are, and what is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.cases import CASES, listing

FOLDER = Path(__file__).parents[1] / "benchmarks"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    main()


def test_every_file_with_a_run_is_a_case() -> None:
    """`es` calls `es_gpu` itself."""
    files = [path.stem for path in FOLDER.glob("*.py") if "\ndef run(" in path.read_text(encoding="utf-8")]
    assert sorted([*CASES, "es_gpu"]) == sorted(files)


def test_help_lists_the_cases(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--help")
    assert ended.value.code == 0
    assert listing() in capsys.readouterr().out
    for name, case in CASES.items():
        (line,) = (line for line in listing().splitlines() if name in line.split()[:2])
        assert all(part in line for part in (case.runs_on, case.takes, case.measures))
        assert line.startswith("*") == case.is_default


def test_an_unknown_case_is_refused_with_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "linear", "liner", "convolution")
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert "unknown case liner, convolution; expected some of:" in shown
    assert listing() in shown


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_a_gpu_case_is_refused_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "linear", "training_gpu")
    assert ended.value.code == 2
    assert "training_gpu: needs a CUDA device" in capsys.readouterr().err


def test_every_file_can_be_imported() -> None:
    """In the interpreter, so that the cases of a GPU are imported too."""
    pytest.importorskip("triton")
    names = [f"benchmarks.{path.stem}" for path in FOLDER.glob("*.py") if path.stem != "no_device"]
    code = f"import importlib; [importlib.import_module(name) for name in {names}]"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(FOLDER.parent)}
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER.parent, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
