"""Imports go down, never up or sideways between applications; `import flipout` needs torch and numpy alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import flipout

PACKAGE = Path(flipout.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
# A module may import from its own level and from the levels before it.
ORDER = [
    {"errors"},
    {
        "_arguments",
        "_batched_gradients",
        "_capture",
        "_cuda_graphs",
        "_drawing",
        "_extras",
        "_files",
        "_html",
        "_model_calls",
        "_progress",
        "_reprs",
        "_student",
        "_tensor_files",
        "_torch_internals",
        "_typed",
    },
    {"backend"},
    {"draws"},
    {"_shards"},
    {"distributions", "schemes", "ops", "_perturbation"},
    {"nn"},
    {
        "_where",
        "_by_glob",
        "_left",
        "_convert",
        "_examples",
        "_freeze",
        "_parameter_groups",
        "_refused_models",
        "_summary",
    },
    {"bayes", "regularizers", "es", "variance"},
    {"peft"},
    {"testing"},
    {"experiments"},
]
# These share a level but may not import each other. What two of them need lives below both.
APPLICATIONS = {"bayes", "regularizers", "es", "variance"}
# Bayesian LoRA applies `bayes` to the models of one library: it uses the KL and the predictions of `bayes`.
BELOW = {"peft": {"bayes"}}  # a room above the applications → those that it may import
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def allowed(importer: str, imported: str) -> bool:
    if importer == imported:
        return True
    if {importer, imported} <= APPLICATIONS:
        return False
    if importer in BELOW and imported in APPLICATIONS:
        return imported in BELOW[importer]
    return LEVEL[imported] <= LEVEL[importer]


def imported(path: Path) -> set[str]:
    """Return the rooms of this package that a file imports, at its top or inside a function."""
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
    for other in imported(path):
        assert allowed(room(path), other), f"{path.relative_to(PACKAGE)} imports {other}"


def test_upward_and_sideways_imports_are_refused():
    assert allowed("bayes", "nn")
    assert allowed("_where", "_convert")
    assert not allowed("nn", "bayes")
    assert not allowed("bayes", "variance")
    assert not allowed("es", "regularizers")
    assert allowed("peft", "bayes")
    assert not allowed("peft", "variance")
    assert not allowed("bayes", "peft")
    assert LEVEL.keys() >= APPLICATIONS


def test_imports_are_found():
    assert imported(PACKAGE / "_convert.py") >= {"nn", "distributions", "_where"}
    assert imported(PACKAGE / "nn" / "parameters.py") >= {"draws", "ops", "_perturbation"}


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
