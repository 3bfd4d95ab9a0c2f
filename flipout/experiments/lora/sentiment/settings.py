"""The settings of the experiment."""

from dataclasses import dataclass

from ..settings import AdapterSettings
from .models import Encoder


@dataclass(frozen=True)
class SentimentSettings(AdapterSettings):
    """`noise` is the standard deviation of the noise of synthetic ratings."""

    model: Encoder = "random"
    noise: float = 0.5
    decays: tuple[float, ...] = (0.01, 0.1)
