"""Experiments use the library as its users do: they import public names alone."""

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest

from flipout import _drawing, errors, experiments

ROOT = Path(experiments.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
# Packages of the library that are public, and what each of them has to offer.
PUBLIC: dict[str, set[str]] = {
    name: {*import_module(name).__all__}
    for name in (
        "flipout",
        "flipout.bayes",
        "flipout.bayes.likelihoods",
        "flipout.es",
        "flipout.es.rl",
        "flipout.nn",
        "flipout.regularizers",
        "flipout.variance",
    )
}
PUBLIC["flipout.errors"] = {name for name, value in vars(errors).items() if inspect.isclass(value)}
PUBLIC["flipout"] |= {"__version__", "__file__"}
# The figures of the library and those of the experiments have one style.
PUBLIC["flipout._drawing"] = {name for name in vars(_drawing) if not name.startswith("_")}
# File → (internal name, why there is no public way).
_DOOR = "files are read and written by one door, for the library and for the experiments"
EXCEPTIONS: dict[str, dict[str, str]] = {  # file → internal name → why it is needed
    "door.py": {
        **{
            f"flipout._files.{name}": _DOOR
            for name in ("append", "is_unfinished", "read_plain", "remove_unfinished", "replacing", "write_atomically")
        },
        **{f"flipout._tensor_files.{name}": _DOOR for name in ("load_tensors", "pack_tensors", "read_tensor_file")},
        **{f"flipout._typed.{name}": _DOOR for name in ("Mismatch", "SHORT", "in_one_line", "parse_json", "typed")},
    },
    "extras.py": {"flipout._extras.import_extra": "a missing package is named in one way"},
    "doctor.py": {
        f"flipout._torch_internals.{name}": "doctor says which versions of torch are tested, and nobody else asks"
        for name in ("TESTED", "tested")
    },
    "uncertainty/figures.py": {
        "flipout._student.share_interval": "its reliability diagram has the intervals of the one in flipout.bayes"
    },
}


def internals(tree: ast.Module) -> list[str]:
    """Return the names of the library that a file uses although they are not public."""
    modules: dict[str, str] = {}  # a name in this file → the module that it stands for
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "flipout":
                    modules[alias.asname or "flipout"] = alias.name if alias.asname else "flipout"
                    found += [alias.name] * (alias.name not in PUBLIC)
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] == "flipout":
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found += [name] * (alias.name not in PUBLIC.get(str(node.module), ()))
                modules[alias.asname or alias.name] = name
    for node in ast.walk(tree):
        dotted = _dotted(node)
        if dotted and dotted[0] in modules:
            found += _hidden(modules[dotted[0]], dotted[1:])
    return sorted(set(found))


def _dotted(node: ast.AST) -> list[str]:
    """a.b.c → ["a", "b", "c"]; empty for everything else."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return [*before, node.attr]
    return []


def _hidden(module: str, names: list[str]) -> list[str]:
    """Follow attributes as long as they lead through public modules."""
    for name in names:
        if module not in PUBLIC:
            return []
        if name not in PUBLIC[module]:
            return [f"{module}.{name}"]
        module = f"{module}.{name}"
    return []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_public_names_of_the_library_are_used(path):
    allowed = EXCEPTIONS.get(str(path.relative_to(ROOT)), {})
    assert internals(ast.parse(path.read_text(encoding="utf-8"))) == sorted(allowed)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_imports_stay_inside_of_the_experiments(path):
    depth = len(path.relative_to(ROOT).parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level <= depth, ast.unparse(node)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import flipout\nflipout.perturb(model)\nflipout.bayes.ELBO(model)\nflipout.es.rl.Episodes", []),
        ("from flipout import bayes as b\nb.likelihoods.Gaussian(1.0)", []),
        ("from flipout.variance.records import interval", ["flipout.variance.records.interval"]),
        ("from flipout import backend\nbackend.kernels()", []),
        ("from flipout import draws", ["flipout.draws"]),
        ("import flipout\nflipout.nn.contexts.hold(model)", ["flipout.nn.contexts"]),
        ("from flipout import variance\nvariance.student.t_tail(1.0, 3)", ["flipout.variance.student"]),
        ("import flipout.ops.linear", ["flipout.ops.linear"]),
        ("def late():\n    from flipout.errors import _hidden", ["flipout.errors._hidden"]),
    ],
)
def test_internals_are_found(code, found):
    assert internals(ast.parse(code)) == found
