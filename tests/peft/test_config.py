"""The settings of a posterior, as they are written and read."""

import json
from typing import Any

import pytest

from flipout import errors
from flipout.peft._config import PosteriorConfig, read_config

CONFIG = PosteriorConfig(0.1, 0.5, "A", "flipout")


def test_settings_are_read_as_they_were_written() -> None:
    saved = json.loads(json.dumps(CONFIG.saved("mine", {"file": "ab"})))
    assert read_config(saved, "here") == (CONFIG, "mine", {"file": "ab"})


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"adapter": 3},
        {"std": "0.1"},
        {"std": -1.0},
        {"prior_std": None},
        {"which": "C"},
        {"scheme": "other"},
        {"sha256": {"file": 3}},
        {"sha256": None},
    ],
)
def test_settings_from_disk_are_checked(change: dict[str, Any]) -> None:
    with pytest.raises(errors.DataError, match="here"):
        read_config({**CONFIG.saved("mine", {"file": "ab"}), **change}, "here")


@pytest.mark.parametrize("name", ["format", "adapter", "std", "sha256"])
def test_missing_settings_are_refused(name: str) -> None:
    saved = CONFIG.saved("mine", {})
    del saved[name]
    with pytest.raises(errors.DataError, match="here"):
        read_config(saved, "here")


def test_anything_else_is_refused() -> None:
    with pytest.raises(errors.DataError, match="format 1"):
        read_config([1], "here")
