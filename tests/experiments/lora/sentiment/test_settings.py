"""The settings are checked before anything is trained."""

import pytest

from flipout import errors
from flipout.experiments.lora.sentiment.settings import SentimentSettings


def test_bad_settings() -> None:
    with pytest.raises(errors.InvalidArgument, match="members=1"):
        SentimentSettings(members=1)
    with pytest.raises(errors.InvalidArgument, match="decays"):
        SentimentSettings(decays=())
