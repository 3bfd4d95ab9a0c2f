"""The steps of an LSTM: slopes in chunks, and torch where numpy cannot read."""

import pytest
import torch
from torch import Tensor

from flipout.ops import lstm_steps
from tests.ops.lstms import Case, check


@pytest.mark.parametrize("reverse", [False, True])
def test_slopes_are_made_for_a_few_steps_at_a_time(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(steps=7, reverse=reverse)
    for numbers in (1, 3 * 20, 2 * 3 * 20, 100 * 3 * 20):  # one step at a time, one, two, all
        monkeypatch.setattr(lstm_steps, "_CACHED", numbers)
        check(case)


class Wrapped(Tensor):
    """A tensor that numpy is not asked to read."""


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("inputs", ["noisy", "plain", "product"])
def test_torch_computes_what_numpy_cannot_read(inputs: str, reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    library = lstm_steps._library
    assert library(torch.ones(2).as_subclass(Wrapped))[0] is torch
    assert library(torch.ones(2))[0] is not torch
    monkeypatch.setattr(lstm_steps, "_library", lambda *tensors: library(torch.ones(2).as_subclass(Wrapped)))
    check(Case(inputs=inputs, reverse=reverse))
