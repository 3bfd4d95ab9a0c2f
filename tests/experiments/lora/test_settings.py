"""The settings are checked before anything is trained."""

from typing import Any

import pytest

from flipout import errors
from flipout.experiments.lora.settings import LoraSettings, spreads_tried


@pytest.mark.parametrize("change", [{"seeds": 0}, {"members": 1}, {"decays": ()}, {"information": 10}, {"targets": ()}])
def test_bad_settings(change: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument, match=next(iter(change))):
        LoraSettings(**change)


@pytest.mark.parametrize("change", [{"std": 0.0}, {"other_stds": (-0.1,)}, {"other_stds": (0.02,)}])
def test_spreads_that_cannot_be_tried(change: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"other_stds=.*: expected different numbers > 0"):
        LoraSettings(**change)


def test_a_setting_says_which_spreads_are_tried() -> None:
    assert spreads_tried(LoraSettings(std=0.01)) == "0.01"
    assert spreads_tried(LoraSettings(std=0.01, other_stds=(0.04,))).startswith("0.01 or 0.04, whichever")
