"""A missing package is named together with the extra that installs it."""

import math

import pytest

from flipout._extras import import_extra
from flipout.errors import MissingExtra


def test_an_installed_module_is_returned() -> None:
    assert import_extra("math", "A figure", "experiments") is math


def test_a_missing_package_is_named() -> None:
    message = r"^A figure needs the package no_such_package: pip install 'flipout\[experiments\]'\.$"
    with pytest.raises(MissingExtra, match=message):
        import_extra("no_such_package.part", "A figure", "experiments")
