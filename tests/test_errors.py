"""Every error can be caught by its base, and by the Python error that a caller would expect."""

import inspect

import pytest

from flipout import errors

CLASSES = dict(inspect.getmembers(errors, inspect.isclass))


@pytest.mark.parametrize("name", CLASSES)
def test_an_error_has_this_librarys_base_and_a_python_one(name: str) -> None:
    kind = CLASSES[name]
    assert inspect.getdoc(kind)
    if issubclass(kind, Warning):
        assert issubclass(kind, errors.FlipoutWarning)
        return
    assert issubclass(kind, errors.FlipoutError)
    if kind is not errors.FlipoutError:
        usual = (ValueError, RuntimeError, ArithmeticError, ImportError)
        assert issubclass(kind, usual), f"{name} is caught by none of {usual}"
