"""What recurrent layers and cells share: the cell of a step, and the parts of a state."""

from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout.errors import InvalidArgument, Unsupported
from flipout.ops import recurrent as ops
from tests.networks import GAUSSIAN


def converted(plain: nn.Module) -> Any:
    return flipout.perturb(plain, GAUSSIAN)


def test_cells() -> None:
    assert converted(nn.LSTM(2, 2))._make_cell() == ops.LSTM()
    assert converted(nn.GRUCell(2, 2))._make_cell() == ops.GRU()
    assert converted(nn.RNN(2, 2, nonlinearity="relu"))._make_cell() == ops.RNN("relu")
    cell = converted(nn.RNNCell(2, 2))
    cell.nonlinearity = "sigmoid"
    with pytest.raises(InvalidArgument, match=r"RNNCell: nonlinearity='sigmoid'; expected 'tanh' or 'relu'"):
        cell._make_cell()


def test_parts_of_a_state() -> None:
    h, c = torch.zeros(1), torch.ones(1)
    assert converted(nn.LSTMCell(2, 2))._state_parts((h, c)) == (h, c)
    assert converted(nn.GRU(2, 2))._state_parts(h) == (h,)


@pytest.mark.parametrize("plain", [nn.LSTM(2, 2), nn.GRUCell(2, 2)], ids=["layer", "cell"])
def test_local_reparameterisation_is_refused(plain: nn.Module) -> None:
    with pytest.raises(Unsupported, match="a weight is used at every time step"):
        flipout.perturb(plain, GAUSSIAN, scheme="local_reparam")
