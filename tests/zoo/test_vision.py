"""Models of images and sound, each against the loop over its examples."""

import pytest

from . import vision
from .oracle import compare

BOUND = 1e-12  # fp64: rounding alone


@pytest.mark.parametrize("name", ["vit", "whisper"])
def test_a_model_is_its_examples_alone(name: str) -> None:
    assert compare(getattr(vision, name)()) < BOUND
