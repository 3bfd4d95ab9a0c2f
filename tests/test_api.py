"""The public names: each has a docstring of its own and a place in docs/api, and nothing else has."""

import ast
import inspect
import re
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
    "flipout.regularizers",
    "flipout.variance",
]


def public() -> dict[str, Any]:
    """Dotted name → the object; modules have pages, not entries."""
    found = {}
    for module in map(import_module, PACKAGES):
        found |= {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
    found |= {f"flipout.errors.{name}": made for name, made in vars(errors).items() if inspect.isclass(made)}
    return {name: made for name, made in found.items() if not inspect.ismodule(made)}


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
    made = getattr(import_module(module), last)
    if not (inspect.isclass(made) or inspect.isroutine(made)):
        assert documented(module, last), f"{name} has no docstring: a string after its assignment"
        return
    own = vars(made).get("__doc__") if inspect.isclass(made) else made.__doc__
    assert own, f"{name} has no docstring of its own"
    assert not own.startswith(f"{last}("), f"{name} has only the docstring that dataclass made"


@pytest.mark.parametrize("name", [name for name, made in PUBLIC.items() if inspect.isclass(made)])
def test_its_public_methods_say_what_they_do(name: str) -> None:
    for method, made in vars(PUBLIC[name]).items():
        function = made.fget if isinstance(made, property) else getattr(made, "__func__", made)
        if method.startswith("_") or not inspect.isfunction(function):
            continue
        inherited = (getattr(parent, method, None) for parent in PUBLIC[name].__mro__)
        assert any(inspect.getdoc(one) for one in inherited), f"{name}.{method} has no docstring"


# Their docstrings say what their fields are.
SETTINGS = (flipout.Distribution, flipout.Scheme, flipout.bayes.Prior, flipout.es.Population)


@pytest.mark.parametrize("name", [name for name, made in PUBLIC.items() if inspect.isclass(made)])
def test_the_fields_of_what_is_returned_have_a_line_each(name: str) -> None:
    """The site makes it of the comment behind the field."""
    made = PUBLIC[name]
    fields = made._fields if hasattr(made, "_fields") else getattr(made, "__dataclass_fields__", ())
    if not issubclass(made, SETTINGS):
        for field in fields:
            assert re.search(rf"^    {field}: .*  # \w*", inspect.getsource(made), re.MULTILINE), f"{name}.{field}"


def methods(made: Any) -> dict[str, Any]:
    found = {name: getattr(one, "fget", getattr(one, "__func__", one)) for name, one in vars(made).items()}
    return {
        name: one for name, one in found.items() if name[0] != "_" and name != "forward" and inspect.isfunction(one)
    }


SHAPED = {name: made for name, made in PUBLIC.items() if inspect.isfunction(made)} | {
    f"{name}.{method}": one
    for name, made in PUBLIC.items()
    if inspect.isclass(made) and made is not flipout.nn.Perturbed  # whose methods are for layers
    for method, one in methods(made).items()
}


@pytest.mark.parametrize(
    "name", [name for name, made in SHAPED.items() if re.search("Tensor|Array", str(inspect.signature(made)))]
)
def test_tensors_have_shapes(name: str) -> None:
    owner, _, method = name.rpartition(".")
    made = getattr(PUBLIC[owner], method) if owner in PUBLIC else SHAPED[name]
    said = inspect.getdoc(made.fget if isinstance(made, property) else made) or ""
    assert re.search(r"\([^)]*(,|…)[^)]*\)|shape|\(\)", said), f"{name}: {said}"


def documented(module: str, name: str) -> bool:
    """Whether a string stands after the assignment of that name, somewhere in its package."""
    source = Path(str(inspect.getsourcefile(import_module(module))))
    for path in source.parent.glob("*.py") if source.stem == "__init__" else [source]:
        for one, following in pairwise(ast.parse(path.read_text()).body):
            targets = [one.target] if isinstance(one, ast.AnnAssign) else getattr(one, "targets", [])
            if [name] == [target.id for target in targets if isinstance(target, ast.Name)]:
                return isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
    return False
