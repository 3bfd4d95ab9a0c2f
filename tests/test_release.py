"""What a release promises: a typed package, files that say the same, and a wheel that works in an empty environment."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

import flipout

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_it_is_typed() -> None:
    assert (Path(flipout.__file__).parent / "py.typed").exists()
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_the_version_is_semantic_and_cited() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|(a|b|rc)\d+)?", flipout.__version__)
    assert f"\nversion: {flipout.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_only_pythons_that_were_tested_are_declared() -> None:
    """3.11: these tests; 3.12: the same with torch 2.11 and 2.15, and most runs in results/; 3.13: the core and the
    experiments, with torch 2.13. Another is added with its first green run."""
    declared = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert declared == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == ">=3.11"


def test_nothing_is_unpickled() -> None:
    for path in (ROOT / "flipout").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name.partition(".")[0] for alias in node.names}
                names.add((getattr(node, "module", None) or "").partition(".")[0])
                assert not names & {"pickle", "cloudpickle", "dill", "marshal", "shelve"}, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                assert ast.unparse(node.func) not in {"torch.load", "torch.jit.load", "np.load", "numpy.load"}, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec"}, path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("build") is None:
        pytest.skip("needs pip install 'flipout[dev]'")
    folder = tmp_path_factory.mktemp("dist")
    run(folder, sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


def run(folder: Path, *command: str | Path, **more: str) -> str:
    """Run a command in a folder, away from this checkout and its data."""
    here = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "FLIPOUT_DATA")}
    ended = subprocess.run([*map(str, command)], cwd=folder, env={**here, **more}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_wheel_has_every_file_and_can_be_imported(wheel: Path, tmp_path: Path) -> None:
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    packed = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    sources = {
        path.relative_to(ROOT)
        for package in ("flipout", "flipout_command")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {path for path in packed if not path.parts[0].endswith(".dist-info")} == sources
    (points,) = tmp_path.glob("*.dist-info/entry_points.txt")
    assert "flipout = " in points.read_text()
    code = "import flipout, flipout_command; print(flipout.__file__)"
    assert run(tmp_path, sys.executable, "-c", code, PYTHONPATH=str(tmp_path)).startswith(str(tmp_path))


@pytest.mark.slow  # it installs PyTorch
def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    run(tmp_path, sys.executable, "-m", "venv", tmp_path / "venv")
    there = tmp_path / "venv" / "bin"
    install = (there / "pip", "install", "-q", "--no-compile", "-c", ROOT / "constraints.txt")
    run(tmp_path, *install, wheel)
    assert run(tmp_path, there / "python", "-c", "import flipout; print(flipout.__file__)").startswith(str(tmp_path))
    assert "missing" in run(tmp_path, there / "flipout", "doctor")
    run(tmp_path, *install, f"{wheel}[experiments]")
    run(tmp_path, there / "flipout", "run", "variance-fc", "--preset", "quick")
    run(tmp_path, there / "flipout", "report", "runs/variance-fc-quick")
    assert (tmp_path / "report.html").stat().st_size > 10_000
