"""transformers' language models, each against the loop over its examples."""

import pytest

from .oracle import compare
from .text import family

BOUND = 1e-12  # fp64: rounding alone


@pytest.mark.parametrize("name", ["Llama", "Qwen2", "Qwen3", "Bert", "T5"])
def test_a_language_model_is_its_examples_alone(name: str) -> None:
    assert compare(family(name)) < BOUND
