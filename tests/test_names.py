"""Names say what they name: no vague locals, no name for two things, none that hides an import."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted(path for room in ("flipout", "flipout_command") for path in (ROOT / room).rglob("*.py"))

# Words that fit any value, so that a reader has to look up what this one is.
VAGUE = {
    "adopt",
    "beside",
    "crew",
    "given",
    "left_to_kernels",
    "made",
    "one",
    "own",
    "ruled",
    "twice",
    "whole",
}

# Classes of two rooms that are told apart by their room: `nn.LSTM` and `ops.LSTM`, `testing.Check` and those of runs.
TWO_ROOMS = {
    "Check": {"experiments/running/results.py", "testing/_report.py"},
    "GRU": {"nn/recurrent.py", "ops/recurrent.py"},
    "Gaussian": {"bayes/_number_likelihoods.py", "distributions/gaussian.py"},
    "LSTM": {"nn/recurrent.py", "ops/recurrent.py"},
    "Linear": {"nn/linear.py", "ops/linear.py"},
    "RNN": {"nn/recurrent.py", "ops/recurrent.py"},
}

# A definition and the kernel, or node of a compiled graph, that computes the same thing.
SAME_THING = {
    "outer_sum": {"ops/onednn.py", "schemes/sums.py"},
    "packed_signs": {"draws/opaque.py", "ops/triton/signs.py"},
    "quantise": {"ops/triton/fp8.py", "schemes/quantised.py"},
    "scaled_noise": {"distributions/opaque.py", "ops/triton/scaled_streams.py"},
    "sign_words": {"draws/signs.py", "ops/triton/signs.py"},
}


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix().removeprefix("flipout/")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def local_names(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the variables, arguments, functions and classes that are bound within a node, with their lines."""
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.lineno, child.id
        elif isinstance(child, ast.arg):
            yield child.lineno, child.arg
        elif isinstance(child, ast.FunctionDef | ast.ClassDef | ast.MatchAs | ast.MatchStar) and child.name:
            yield child.lineno, child.name


def attributes(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the attributes that are set within a node, with their lines."""
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
            yield child.lineno, child.attr


def defined(kind: type[ast.ClassDef] | type[ast.FunctionDef]) -> dict[str, set[str]]:
    """Map each name that is defined at the top of a file to the files that define it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in FILES:
        for node in tree(path).body:
            if isinstance(node, kind):
                found[node.name].add(place(path))
    return found


def test_no_name_is_vague() -> None:
    vague = [
        f"{place(path)}:{line} {name}"
        for path in FILES
        for line, name in (*local_names(tree(path)), *attributes(tree(path)))
        if name.strip("_") in VAGUE
    ]
    assert not vague, vague


def test_no_two_classes_have_one_name() -> None:
    several = {name: files for name, files in defined(ast.ClassDef).items() if len(files) > 1}
    assert several == TWO_ROOMS


def test_no_two_functions_of_the_library_have_one_name() -> None:
    """Within experiments, the packages of the families have the same functions on purpose: `work`, `draw`, …"""
    library = {
        name: {file for file in files if not file.startswith("experiments/")}
        for name, files in defined(ast.FunctionDef).items()
        if not name.startswith("_")
    }
    several = {name: files for name, files in library.items() if len(files) > 1}
    assert several == SAME_THING


def test_a_module_and_what_it_defines_differ() -> None:
    """A package that exports such a name would hide its module. The siblings' `work.py` has `work`, and no exports."""
    same = [
        place(path)
        for path in FILES
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == path.stem and path.stem != "work"
    ]
    assert not same, same


def test_no_package_exports_the_name_of_a_module_of_its_own() -> None:
    for init in (path for path in FILES if path.name == "__init__.py"):
        modules = {
            path.stem for path in init.parent.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
        }
        exported = {
            alias.asname or alias.name
            for node in ast.walk(tree(init))
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        assert not modules & exported, place(init)


def test_no_local_hides_an_import() -> None:
    """Constants that a kernel takes under the name of their default are the same numbers."""
    hidden = []
    for path in FILES:
        imported = {
            (alias.asname or alias.name).partition(".")[0]
            for node in tree(path).body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        hidden += [
            f"{place(path)}:{line} {name}"
            for function in ast.walk(tree(path))
            if isinstance(function, ast.FunctionDef | ast.Lambda)
            for part in ast.iter_child_nodes(function)
            for line, name in local_names(part)
            if name in imported and not name.isupper()
        ]
    assert not hidden, hidden
