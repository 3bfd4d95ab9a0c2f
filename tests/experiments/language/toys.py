"""Trained rows with chosen losses, and what is found of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flipout.experiments.language import claims
from flipout.experiments.language.models import Shape
from flipout.experiments.language.work import LanguageConfig, Table, Trained
from flipout.experiments.registry import EXPERIMENTS

WORD = EXPERIMENTS["ptb-word"]


def found_of(name: str, config: LanguageConfig, trained: Sequence[Trained]) -> claims.Found:
    """Return what the table of an experiment finds in these models."""
    table = getattr(EXPERIMENTS[name].work, "__self__", None)
    assert isinstance(table, Table)
    return table.found(config, trained)


def config(**changes: Any) -> LanguageConfig:
    config = replace(WORD.config("smoke"), device="cpu", most=700, **changes)  # pyright: ignore[reportCallIssue]
    assert isinstance(config, LanguageConfig)
    return config


def trained(
    row: str, seed: int, valid: float, test: float, train: tuple[float, ...] = (3.0,) * 100, ended: str = "epochs"
) -> Trained:
    history = [
        {"train": loss, "valid": valid, "rate": 1.0, "training": 1.0, "seconds": 2.0, "beside": 1} for loss in train
    ]
    drawn = {"shared": [1.0, 2.0, 3.0], "flipout": [1.5, 2.0, 2.5]} if "flipout" in row else {}
    return Trained(row, seed, 19_780_400, 929_560, history, ended, valid, test, test + 0.1, 1e-6, drawn)


SMALL = Shape(embedding=6, hidden=6, layers=2)


def paper(name: str) -> LanguageConfig:
    config = EXPERIMENTS[name].config("paper")
    assert isinstance(config, LanguageConfig)
    return config
