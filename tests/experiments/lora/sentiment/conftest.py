import pytest

from flipout.experiments.lora.sentiment.settings import SentimentSettings


@pytest.fixture
def config() -> SentimentSettings:
    return SentimentSettings(
        device="cpu",
        seeds=1,
        train=24,
        valid=8,
        test=12,
        steps=6,
        batch=8,
        decays=(0.1,),
        members=2,
        samples=4,
        rounds=2,
    )
