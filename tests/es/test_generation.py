"""The record of a generation: its speed and its two texts."""

import math

from flipout.es._generation import Generation

RECORD = Generation(3, 0.123456, 0.5, 0.0123456, 24, 2, 0.5)


def test_texts_and_speed() -> None:
    assert RECORD.members_per_second == 48
    assert str(RECORD) == "generation 3: fitness 0.1235 (max 0.5), update 0.0123, 48 members/s, 2 missing"
    expected = "generation=3, fitness_mean=0.1235, fitness_max=0.5, update_norm=0.01235, members=24, missing=2"
    assert repr(RECORD) == f"Generation({expected}, seconds=0.5)"
    assert Generation(0, 0.0, 0.0, 0.0, 1, 0, 0.0).members_per_second == math.inf
