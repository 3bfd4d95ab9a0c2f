"""A small task, and curves that fall at a chosen speed."""

from dataclasses import replace

from flipout.experiments.es.curves import EsCurve
from flipout.experiments.es.training import DIGITS

SMALL = replace(DIGITS, hidden=(8,), batch=16, updates=5)


def curve(name: str, seed: int, slowness: float, end: float = 0.0) -> EsCurve:
    """A loss that falls as 1 / (1 + t / slowness)."""
    at = [0, 1, 2, 4, 8, 16, 32, 64, 128]
    falling = [end + 1 / (1 + t / slowness) for t in at]
    return EsCurve(name, seed, at, falling, falling, falling, 0.1)
