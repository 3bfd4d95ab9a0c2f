"""A written-out backward pass of an LSTM is that of the loop over steps."""

import copy
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

import flipout
from flipout.ops import lstm, recurrent
from tests.nn.test_sequences import call, states
from tests.oracles import Case, Draws, check_truth, tensor

LEARNED = flipout.MeanField(std=0.3)


@pytest.mark.parametrize("draw", [Draws(), Draws(first=130, antithetic=True), Draws(group=3), Draws(rows=2)], ids=str)
@pytest.mark.parametrize("noise", [flipout.Gaussian(0.3), flipout.DropConnect(0.5), LEARNED], ids=str)
@pytest.mark.parametrize(
    ("options", "where", "calls"),
    [
        ({}, None, 1),
        ({"num_layers": 2, "bidirectional": True}, None, 4),
        ({"num_layers": 2, "batch_first": True}, "weight_hh*", 2),
        ({"bias": False}, ["weight_hh*", "weight_ih*"], 1),
        ({}, "weight_ih*", 0),
        ({"proj_size": 2}, None, 0),
        ({}, "*", 0),
    ],
)
def test_a_backward_pass_that_is_written_out_is_that_of_the_loop(
    options: dict[str, Any], where: Any, calls: int, noise: Any, draw: Draws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Double precision normally runs the definition; here it runs `FlippedLSTM`, for the calls that this serves."""
    monkeypatch.setattr(recurrent, "WRITTEN_OUT_FOR", (torch.float64,))
    run, seen = lstm.run_forward, []
    monkeypatch.setattr(lstm, "run_forward", lambda *args: [seen.append(args), run(*args)])
    plain = nn.LSTM(3, 4, **options).double()
    rows, dim = 4, 0 if plain.batch_first else 1
    x = tensor(*((rows, 5) if plain.batch_first else (5, rows)), 3)
    layer = flipout.perturb(copy.deepcopy(plain), noise, where=where)
    check_truth(Case(plain, (x, *states(plain, rows)), (dim, 1, 1), (dim, 1, 1), call, where), layer, draw)
    assert len(seen) == (calls if draw.rows == 1 and draw.group is None else 0)
