"""Rank-one noise and noise vectors, made where they are added, give the outputs of the definition."""

import pytest
import torch
from torch import nn

import flipout
from flipout.backend import choosing, chosen
from tests.ops.triton.kernels import CLOSE, DEVICE, MARKS
from tests.ops.triton.populations import assert_forward

pytestmark = MARKS


@pytest.mark.parametrize("scheme", [flipout.LowRank(1), flipout.LowRank(2), flipout.Independent()], ids=str)
@pytest.mark.parametrize("fields", [{}, {"first": 3}, {"antithetic": True}, {"rows": 3}], ids=str)
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_outputs_are_those_of_the_definition(dtype: torch.dtype, fields: dict, scheme: flipout.Scheme) -> None:
    torch.manual_seed(0)
    for fan_in, fan_out in ((141, 7), (8, 10)):
        model = flipout.perturb(nn.Linear(fan_in, fan_out), flipout.Gaussian(0.3), scheme=scheme, where="*")
        assert_forward(model, torch.randn(24, fan_in), dtype, **fields)


def test_more_words_than_a_program_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipout.ops.triton.example_noise._BLOCK", 8)
    model = flipout.perturb(nn.Linear(41, 37), flipout.Gaussian(0.3), scheme=flipout.LowRank(1), where="*")
    assert_forward(model, torch.randn(5, 41), torch.float32)


def test_a_spread_for_each_weight_is_left_to_the_definition() -> None:
    model = flipout.perturb(nn.Linear(9, 6), flipout.MeanField(std=0.3), scheme="independent", where="*")
    assert_forward(model, torch.randn(5, 9), torch.float32)


def test_a_layer_without_outputs() -> None:
    x, start = torch.randn(3, 9, device=DEVICE), torch.tensor([1, 2, 3], device=DEVICE)
    with choosing("triton"):
        kernel = chosen("add_rank_one", x, -1)
    assert kernel(x.new_zeros(3, 0), x, start, x.new_ones(())).shape == (3, 0)
