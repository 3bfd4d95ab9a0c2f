"""flipout doctor names what is installed and what is not, and works where little is."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch

import flipout
from flipout import backend
from flipout.errors import InvalidArgument
from flipout.experiments import doctor
from flipout.experiments.data import checksums, files

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(files.VARIABLE, raising=False)
    monkeypatch.setattr(files, "user_cache", lambda: tmp_path / "cache")


def test_it_says_versions_devices_kernels_and_data(capsys: pytest.CaptureFixture) -> None:
    assert doctor.diagnose() == 0
    out = capsys.readouterr().out
    for said in (flipout.__version__, torch.__version__, "devices", "cpu", "kernels", "MNIST", "Penn Treebank, words"):
        assert said in out
    assert out.count("not here: set FLIPOUT_DATA") == len(checksums.DATA_SETS)


@pytest.mark.parametrize("width", [80, 120])
def test_lines_on_a_terminal_are_wrapped_at_words(width: int) -> None:
    found = "missing matplotlib, rich, tyro, pooch, safetensors, scipy: pip install 'flipout[experiments]'"
    row = doctor._row("extras", "experiments", found, width)
    lines = row.splitlines()
    assert max(map(len, lines)) <= width
    assert row.split() == ["extras", "experiments", *found.split()]
    assert [line for line in lines if "pip install 'flipout[experiments]'" in line]
    assert doctor._row("extras", "experiments", found, None).endswith(f" {found}")


def test_data_that_is_there_or_half_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [file.name for file in checksums.MNIST.files] + [checksums.CIFAR10.files[0].name]:
        path = tmp_path / "data" / (name + (".gz" if name.startswith("mnist") else ""))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setenv(files.VARIABLE, str(tmp_path / "data"))
    found = {which: what for area, which, what in doctor.findings() if area == "data"}
    assert found["MNIST"] == f"the folder in FLIPOUT_DATA: {tmp_path / 'data'}"
    assert found["CIFAR-10"] == f"the folder in FLIPOUT_DATA, 1 of 6 files: {tmp_path / 'data'}"


def test_a_folder_that_is_not_there_is_status_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setenv(files.VARIABLE, "/no/such/folder")
    assert doctor.diagnose() == 1
    assert "FLIPOUT_DATA is '/no/such/folder', which is not a folder" in capsys.readouterr().out


def test_a_missing_package_comes_with_the_line_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        if package in ("tyro", "rich"):
            raise PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr(doctor, "version", missing)
    found = {which: what for area, which, what in doctor.findings() if area == "extras"}
    assert found["experiments"].endswith("missing rich, tyro: pip install 'flipout[experiments]'")
    assert found["ray"] == "ray 1.0"


def test_the_extras_are_those_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, packages in doctor.EXTRAS.items():
        assert {re.split(r"[\[;]", requirement)[0].strip() for requirement in declared[extra]} == set(packages)
    assert declared.keys() - doctor.EXTRAS.keys() == {"bench", "dev", "docs", "zoo"}


def test_kernels_or_why_there_are_none() -> None:
    names, refused = backend.kernels()
    assert ("lstm" in names) != bool(refused)


def test_it_needs_no_extra() -> None:
    """The packages of the other commands cannot be imported."""
    packages = sorted({name.replace("scikit-learn", "sklearn") for extra in doctor.EXTRAS.values() for name in extra})
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({packages})); "
        "sys.argv = ['flipout', 'doctor']; from flipout.experiments.__main__ import run; sys.exit(run())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert "embedded" in run.stdout


@pytest.mark.parametrize(
    ("load", "cores", "threads", "advised"),
    [(5.3, 2, 2, "OMP_NUM_THREADS=1"), (6.0, 16, 16, None), (12.0, 16, 16, "OMP_NUM_THREADS=4"), (5.3, 2, 1, None)],
)
def test_busy_cores_come_with_a_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, load, cores, threads, advised
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    advice = doctor.thread_advice()
    assert (advice is None) == (advised is None)
    if advice is not None:
        assert f"load {load} on {cores}" in advice
        assert f"{advised} makes" in advice
        assert ("devices", "threads", advice) in [*doctor.findings()]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert doctor.thread_advice() is None


def test_arguments_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="takes no arguments; 'all' given"):
        doctor.diagnose(["all"])


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ("2.11.0", ""),
        ("2.13.0+cpu", ""),
        ("2.9.1", "an older version than"),
        ("2.12.1", "not a tested one"),
        ("2.15.0", "newer than"),
        ("3.0", "newer than"),
        ("main", "another version than"),
    ],
)
def test_a_torch_that_no_test_has_run_with(found: str, says: str) -> None:
    said = doctor._untested(found)
    assert bool(said) == bool(says)
    assert says in said
