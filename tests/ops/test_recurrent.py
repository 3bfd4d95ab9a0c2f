"""Cells take the step of torch's cells, and a scan takes them in order."""

from typing import Any

import pytest
import torch
from torch import nn

from flipout.ops.recurrent import GRU, LSTM, RNN, Scan

CELLS: dict[str, tuple[Any, Any]] = {
    "LSTM": (LSTM(), nn.LSTMCell),
    "GRU": (GRU(), nn.GRUCell),
    "tanh": (RNN("tanh"), nn.RNNCell),
    "relu": (RNN("relu"), lambda *sizes: nn.RNNCell(*sizes, nonlinearity="relu")),
}


def products(name: str) -> tuple[Any, nn.Module, Any, Any]:
    cell, make = CELLS[name]
    plain = make(3, 4).double()
    of_input = lambda x: nn.functional.linear(x, plain.weight_ih, plain.bias_ih)  # noqa: E731
    of_state = lambda h: nn.functional.linear(h, plain.weight_hh, plain.bias_hh)  # noqa: E731
    return cell, plain, of_input, of_state


def start(name: str, *shape: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(*shape, dtype=torch.float64) for _ in range(2 if name == "LSTM" else 1))


@pytest.mark.parametrize("name", CELLS)
def test_a_step_is_that_of_torch(name: str) -> None:
    cell, plain, of_input, of_state = products(name)
    x, state = torch.randn(5, 3, dtype=torch.float64), start(name, 5, 4)
    expected = plain(x, state if name == "LSTM" else state[0])
    actual = cell.step(of_input(x), of_state(state[0]), state)
    torch.testing.assert_close(actual, expected if name == "LSTM" else (expected,))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_a_scan_takes_the_steps_in_order_until_a_sequence_ends(name: str, reverse: bool) -> None:
    cell, _, of_input, of_state = products(name)
    x, state, lengths = torch.randn(2, 4, 3, dtype=torch.float64), start(name, 2, 4), torch.tensor([4, 2])
    alive = (torch.arange(4).unsqueeze(1) < lengths).unsqueeze(2)
    outputs, last = Scan(cell, of_state, reverse=reverse)(of_input(x), state, alive)
    for row, length in enumerate(lengths.tolist()):
        own_state = tuple(part[row : row + 1] for part in state)
        for t in reversed(range(length)) if reverse else range(length):
            own_state = cell.step(of_input(x[row : row + 1, t]), of_state(own_state[0]), own_state)
            torch.testing.assert_close(outputs[t, row], own_state[0][0])
        torch.testing.assert_close(tuple(part[row : row + 1] for part in last), own_state)
