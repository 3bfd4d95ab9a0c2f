"""What a release promises: a typed package, files that say the same, and a wheel that works in an empty environment."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

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


@pytest.mark.skipif(find_spec("build") is None, reason="needs pip install 'flipout[dev]'")
@pytest.mark.parametrize("preset", ["smoke", pytest.param("quick", marks=pytest.mark.slow)])
def test_the_wheel_works_in_an_empty_environment(tmp_path: Path, preset: str) -> None:
    def run(*command: str | Path) -> str:
        ended = subprocess.run(
            [*map(str, command)],
            cwd=tmp_path,
            env={key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "FLIPOUT_DATA")},
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    there = tmp_path / "venv" / "bin"
    install = (there / "pip", "install", "-q", "--no-compile", "-c", ROOT / "constraints.txt")
    run(*install, wheel)
    assert run(there / "python", "-c", "import flipout; print(flipout.__file__)").startswith(str(tmp_path))
    assert "missing" in run(there / "flipout", "doctor")
    run(*install, f"{wheel}[experiments]")
    run(there / "flipout", "run", "variance-fc", "--preset", preset)
    run(there / "flipout", "report", f"runs/variance-fc-{preset}")
    assert (tmp_path / "report.html").stat().st_size > 10_000
