"""Imports go downward only, and `import flipout` needs torch and numpy alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import flipout

PACKAGE = Path(flipout.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
# Each may import what stands before it, and itself.
ORDER = [
    {"errors"},
    {"batched", "capture", "extras", "whole"},
    {"backend"},
    {"draws"},
    {"draw", "shards"},
    {"distributions", "schemes", "ops", "perturbation"},
    {"nn"},
    {"where", "convert", "freeze", "summary"},
    {"bayes", "regularizers", "es", "variance"},
    {"experiments"},
]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The rooms of this package that a file imports, wherever in it the statement stands."""
    here = ["flipout", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("flipout.")}
    return found


@pytest.mark.parametrize("path", [p for p in FILES if p != PACKAGE / "__init__.py"], ids=lambda p: str(p.name))
def test_imports_go_downward(path):
    assert room(path) in LEVEL, f"{room(path)} has no place in the order"
    for other in imported(path) - {room(path)}:
        assert LEVEL[other] <= LEVEL[room(path)], f"{path.relative_to(PACKAGE)} imports {other}"


def test_the_order_is_tested_at_all():
    assert imported(PACKAGE / "convert.py") >= {"nn", "distributions", "where"}
    assert imported(PACKAGE / "nn" / "perturbations.py") >= {"draw", "ops", "perturbation"}


def test_importing_needs_torch_and_numpy_alone():
    code = (
        "import sys, numpy, torch; before = set(sys.modules); import flipout; "
        "print(*{m.partition('.')[0] for m in set(sys.modules) - before})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert set(run.stdout.split()) - set(sys.stdlib_module_names) <= {"flipout", "torch", "numpy"}


def test_a_module_and_a_public_name_of_bayes_differ():
    stems = {path.stem for path in (PACKAGE / "bayes").glob("*.py")}
    assert not (stems & set(flipout.bayes.__all__)) - {"likelihoods"}
