"""Import optional packages, and say how to install the ones that are missing."""

from importlib import import_module
from typing import Any

from .errors import MissingExtra

_PACKAGES = {"sklearn": "scikit-learn"}  # import name → package name, where they differ


def import_extra(module: str, feature: str, extra: str) -> Any:
    """Import a module that `feature` needs and that `pip install 'flipout[extra]'` provides."""
    try:
        return import_module(module)
    except ImportError as error:
        package = _PACKAGES.get(module.partition(".")[0], module.partition(".")[0])
        raise MissingExtra(f"{feature} needs the package {package}: pip install 'flipout[{extra}]'.") from error
