"""Optional packages: modules to import, and files that a package only carries."""

from importlib.util import find_spec
from pathlib import Path

from flipout._extras import import_extra as import_extra
from flipout.errors import MissingExtra


def package_folder(module: str, feature: str, extra: str) -> Path:
    """Return the folder of a package that carries files. It is not imported, since it may need further packages."""
    found = find_spec(module)
    if found is None or found.origin is None:
        package = module.replace("_", "-")
        raise MissingExtra(f"{feature} needs the package {package}: pip install 'flipout[{extra}]'.")
    return Path(found.origin).parent
