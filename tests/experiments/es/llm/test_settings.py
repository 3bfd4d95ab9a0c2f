"""Settings that do not belong together are refused."""

import pytest

from flipout.errors import InvalidArgument
from flipout.experiments.es.llm.settings import LlmConfig


def test_texts_have_no_gradient_for_lora() -> None:
    trained = LlmConfig(seeds=2).trained
    assert len(trained) == len(set(trained)) == 2 * (4 + 3)
    assert ("choice", "lora", 1) in trained
    assert ("text", "lora", 1) not in trained


def test_bad_settings() -> None:
    with pytest.raises(InvalidArgument, match="whole chunks"):
        LlmConfig(population=10, chunk=4)
    with pytest.raises(InvalidArgument, match="writers=4: expected whole chunks"):
        LlmConfig(population=10, chunk=5, writers=4)
    with pytest.raises(InvalidArgument, match=r"minutes=0\.0: expected a number above 0"):
        LlmConfig(minutes=0.0)
    with pytest.raises(InvalidArgument, match="a number above 0"):
        LlmConfig(seconds=0)
    with pytest.raises(InvalidArgument, match="seeds=1: expected at least 2"):
        LlmConfig(seeds=1)
