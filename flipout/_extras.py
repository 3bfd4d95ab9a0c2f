"""Packages that only some parts need."""

from importlib import import_module
from typing import Any

from .errors import MissingExtra


def import_extra(module: str, what: str, name: str) -> Any:
    """The module, of a package that the extra `name` brings; `what` asks for it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtra(f"{what} needs the package {package}: pip install 'flipout[{name}]'.") from error
