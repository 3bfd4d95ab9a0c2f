"""The public names: each has a docstring of its own and a place in docs/api, and nothing else has."""

import ast
import inspect
import json
import re
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import flipout
from flipout import errors

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
LISTED = [name for page in PAGES for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)]
# Modules whose `__all__` is public. Of the others, what docs/api lists is.
PACKAGES = [
    "flipout",
    "flipout.bayes",
    "flipout.bayes.likelihoods",
    "flipout.es",
    "flipout.es.rl",
    "flipout.nn",
    "flipout.ops",
    "flipout.peft",
    "flipout.regularizers",
    "flipout.testing",
    "flipout.variance",
]


def public() -> dict[str, Any]:
    """Dotted name → the object; modules have pages, not entries."""
    found = {}
    for module in map(import_module, PACKAGES):
        found |= {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
    found |= {f"flipout.errors.{name}": error for name, error in vars(errors).items() if inspect.isclass(error)}
    return {name: member for name, member in found.items() if not inspect.ismodule(member)}


PUBLIC = public()


def test_every_public_name_is_listed_once_and_no_other_of_these_modules() -> None:
    assert len(LISTED) == len(set(LISTED))
    assert PUBLIC.keys() <= set(LISTED), sorted(PUBLIC.keys() - set(LISTED))
    modules = {*PACKAGES, "flipout.errors"}
    assert {name for name in LISTED if name.rpartition(".")[0] in modules} == PUBLIC.keys()


def test_no_entry_is_a_module() -> None:
    assert not [name for name in LISTED if (ROOT / name.replace(".", "/")).with_suffix(".py").exists()]


@pytest.mark.parametrize("name", LISTED)
def test_it_exists_and_says_what_it_is(name: str) -> None:
    module, _, last = name.rpartition(".")
    member = getattr(import_module(module), last)
    if not (inspect.isclass(member) or inspect.isroutine(member)):
        assert documented(module, last), f"{name} has no docstring: a string after its assignment"
        return
    docstring = vars(member).get("__doc__") if inspect.isclass(member) else member.__doc__
    assert docstring, f"{name} has no docstring of its own"
    assert not docstring.startswith(f"{last}("), f"{name} has only the docstring that dataclass made"


@pytest.mark.parametrize("name", [name for name, member in PUBLIC.items() if inspect.isclass(member)])
def test_its_public_methods_say_what_they_do(name: str) -> None:
    for method, member in vars(PUBLIC[name]).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if method.startswith("_") or not inspect.isfunction(function):
            continue
        inherited = (getattr(parent, method, None) for parent in PUBLIC[name].__mro__)
        assert any(inspect.getdoc(parent) for parent in inherited), f"{name}.{method} has no docstring"


# Their docstrings say what their fields are.
SETTINGS = (flipout.Distribution, flipout.Scheme, flipout.bayes.Prior, flipout.es.Population, flipout.testing.Claim)


@pytest.mark.parametrize("name", [name for name, member in PUBLIC.items() if inspect.isclass(member)])
def test_the_fields_of_what_is_returned_have_a_line_each(name: str) -> None:
    """The site makes it of the comment behind the field."""
    settings = PUBLIC[name]
    fields = settings._fields if hasattr(settings, "_fields") else getattr(settings, "__dataclass_fields__", ())
    if not issubclass(settings, SETTINGS):
        for field in fields:
            assert re.search(rf"^    {field}: .*  # \w*", inspect.getsource(settings), re.MULTILINE), f"{name}.{field}"


def methods(owner: Any) -> dict[str, Any]:
    found = {name: getattr(member, "fget", getattr(member, "__func__", member)) for name, member in vars(owner).items()}
    return {
        name: member
        for name, member in found.items()
        if name[0] != "_" and name != "forward" and inspect.isfunction(member)
    }


SHAPED = {name: function for name, function in PUBLIC.items() if inspect.isfunction(function)} | {
    f"{name}.{method}": function
    for name, member in PUBLIC.items()
    if inspect.isclass(member) and member is not flipout.nn.Perturbed  # whose methods are for layers
    for method, function in methods(member).items()
}


@pytest.mark.parametrize(
    "name", [name for name, function in SHAPED.items() if re.search("Tensor|Array", str(inspect.signature(function)))]
)
def test_tensors_have_shapes(name: str) -> None:
    owner, _, method = name.rpartition(".")
    function = getattr(PUBLIC[owner], method) if owner in PUBLIC else SHAPED[name]
    said = inspect.getdoc(function.fget if isinstance(function, property) else function) or ""
    assert re.search(r"\([^)]*(,|…)[^)]*\)|shape|\(\)", said), f"{name}: {said}"


# Methods of torch and of transformers, whose arguments are explained there.
OTHERS = {"register_parameter", "train", "compute_loss", "get_decay_parameter_names", "log"}


def unexplained(function: Any, docstrings: list[str]) -> list[str]:
    """Return the arguments that no `Args:` section explains."""
    text = "\n".join(docstrings)
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    return [name for name in names if not re.search(rf"^    \*{{0,2}}{name}: |`{name}`", text, re.MULTILINE)]


@pytest.mark.parametrize("name", [name for name, member in PUBLIC.items() if inspect.isclass(member)])
def test_methods_explain_their_arguments(name: str) -> None:
    """A method may leave it to the class that it overrides."""
    for method, function in methods(PUBLIC[name]).items():
        if method not in OTHERS:
            overridden = [vars(parent).get(method) for parent in PUBLIC[name].__mro__]
            assert not unexplained(function, [inspect.getdoc(parent) or "" for parent in overridden if parent]), method


@pytest.mark.parametrize("name", [name for name, member in PUBLIC.items() if inspect.isfunction(member)])
def test_functions_have_all_sections(name: str) -> None:
    function, text = PUBLIC[name], inspect.getdoc(PUBLIC[name]) or ""
    summary, _, rest = text.partition("\n")
    assert summary.endswith("."), f"{name}: the summary is one line"
    assert not rest or rest.startswith("\n"), f"{name}: the summary is one line"
    assert not unexplained(function, [text])
    assert "\nExample:\n" in text
    returned = inspect.signature(function).return_annotation
    is_context = hasattr(function, "__wrapped__") and "Iterator[None]" in str(returned)
    assert returned in (None, "None") or is_context or "\nReturns:\n" in text
    assert not re.search(r"^    (    )*raise \w", inspect.getsource(function), re.MULTILINE) or "\nRaises:\n" in text


def documented(module: str, name: str) -> bool:
    """Whether a string stands after the assignment of that name, somewhere in its package."""
    source = Path(str(inspect.getsourcefile(import_module(module))))
    for path in source.parent.glob("*.py") if source.stem == "__init__" else [source]:
        for statement, following in pairwise(ast.parse(path.read_text()).body):
            targets = [statement.target] if isinstance(statement, ast.AnnAssign) else getattr(statement, "targets", [])
            if [name] == [target.id for target in targets if isinstance(target, ast.Name)]:
                return isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
    return False


MISSPELT = """
import torch
import flipout
layer = torch.nn.Linear(2, 2)
flipout.perturb(layer, flipout.Gaussian(0.1), scheme="flipot")
flipout.nn.Linear(2, 2, distribution=flipout.Gaussian(0.1), scheme="flipot")
flipout.using(layer, scheme="flipot")
flipout.bayes.predict(layer, torch.ones(3, 2), likelihood="gausian")
flipout.es.EvolutionStrategy(layer, lambda p: torch.zeros(2), population=2, std=0.1, scheme="flipot")
flipout.es.EvolutionStrategy(layer, lambda p: torch.zeros(2), population=2, std=0.1, shaping="centred")
flipout.perturb(layer, flipout.Gaussian(0.1), scheme="flipout")
"""


def test_a_type_checker_finds_a_misspelt_name(tmp_path: Path) -> None:
    """Each line but the last is an error, as it is in an editor."""
    path = tmp_path / "misspelt.py"
    path.write_text(MISSPELT)
    checker = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, str(path)]
    run = subprocess.run(checker, capture_output=True, text=True, cwd=ROOT)
    found = json.loads(run.stdout)["generalDiagnostics"]
    errors = {d["range"]["start"]["line"]: d["message"] for d in found if d["severity"] == "error"}
    assert sorted(errors) == [4, 5, 6, 7, 8, 9], found
    assert all("Literal['" in message for message in errors.values())
