"""Short reprs: few digits, no long arrays, no fields that are None or False."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import flipout
from flipout._reprs import short_repr


@dataclass
class Settings:
    rate: Any
    flag: bool = False
    group: int | None = None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (1 / 3, "0.3333"),
        (123456.0, "123500.0"),
        (np.float64(2 / 3), "0.6667"),
        (float("inf"), "inf"),
        (7, "7"),
        ("a", "'a'"),
        (torch.ones(4, 5), "<4×5 tensor>"),
        (torch.tensor(1 / 3), "0.3333"),
        (torch.ones((), device="meta"), "<tensor>"),
        ({"*": 0.1, "a": torch.ones(2)}, "{'*': 0.1, 'a': <2 tensor>}"),
        (Settings(1 / 3), "Settings(rate=0.3333)"),
        (Settings(1.0, True, 4), "Settings(rate=1.0, flag=True, group=4)"),
        (Settings(Settings(torch.ones(3))), "Settings(rate=Settings(rate=<3 tensor>))"),
        (flipout.Flipout(), "Flipout()"),
        (flipout.Gaussian(0.1), "Gaussian(std=0.1)"),
        (Settings, repr(Settings)),
    ],
    ids=str,
)
def test_short_repr(value: Any, text: str) -> None:
    assert short_repr(value) == text
