"""A missing package is named together with the extra that installs it."""

import math
import sys

import pytest

from flipout._extras import import_extra
from flipout.errors import MissingExtra


def test_an_installed_module_is_returned() -> None:
    assert import_extra("math", "A figure", "experiments") is math


def test_a_missing_package_is_named() -> None:
    message = r"^A figure needs the package no_such_package: pip install 'flipout\[experiments\]'\.$"
    with pytest.raises(MissingExtra, match=message):
        import_extra("no_such_package.part", "A figure", "experiments")


def test_a_package_is_named_as_pip_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("sklearn", "sklearn.datasets"):  # other tests may have imported them
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"needs the package scikit-learn: pip install 'flipout\[experiments\]'"):
        import_extra("sklearn.datasets", "A data set", "experiments")
