"""Random words: known answers."""

import pytest
import torch

from flipout.draws import bits
from flipout.draws.bits import wrap


def test_mix_is_splitmix64() -> None:
    """The published outputs for seed 1234567, computed with torch, with numpy and for one number."""
    answers = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    states = [wrap(1234567 + (i + 1) * bits.GAMMA) for i in range(5)]
    assert [bits.mix_number(state) % 2**64 for state in states] == answers
    assert [int(word) % 2**64 for word in bits.mix(torch.tensor(states))] == answers
    assert bits.mix_array(torch.tensor(states).numpy().view("uint64")).tolist() == answers


def test_many_constants_are_not_kept_and_none_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured graph may read a constant that was kept. A standard deviation may change at every step."""
    monkeypatch.setattr(bits, "_CONSTANTS", {})
    monkeypatch.setattr(bits, "_MOST_CONSTANTS", 3)
    constants = [bits.constant(torch.tensor, float(i)) for i in range(5)]
    assert [bits.constant(torch.tensor, float(i)) is constants[i] for i in range(5)] == [True] * 3 + [False] * 2
    assert [float(bits.constant(torch.tensor, float(i))) for i in range(5)] == [0, 1, 2, 3, 4]
    assert len(bits._CONSTANTS) == 3
