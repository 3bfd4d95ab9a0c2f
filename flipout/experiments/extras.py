"""Optional packages."""

from importlib import import_module
from typing import Any

from flipout.errors import MissingExtra


def import_extra(module: str, needed_by: str, extra: str) -> Any:
    """Import a module of an optional package, or say which extra of flipout installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtra(f"{needed_by} needs the package {package}: pip install 'flipout[{extra}]'.") from error
