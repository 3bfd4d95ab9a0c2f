"""Rank-one flips with signs made where they are used give the outputs of the definition."""

from importlib import import_module
from unittest.mock import Mock

import pytest
import torch
from torch import nn

import flipout
from flipout._perturbation import Part, Signs
from flipout.backend import choosing, chosen
from tests.ops.triton.kernels import CLOSE, DEVICE, MARKS
from tests.ops.triton.populations import assert_forward

pytestmark = MARKS


@pytest.mark.parametrize("fields", [{}, {"first": 3}, {"antithetic": True}, {"rows": 3}], ids=str)
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_outputs_are_those_of_the_definition(dtype: torch.dtype, fields: dict) -> None:
    torch.manual_seed(0)
    for fan_in, fan_out, shape in ((141, 7, (24,)), (8, 140, (24,)), (20, 9, (6, 4))):
        model = flipout.perturb(nn.Linear(fan_in, fan_out), flipout.Rademacher(0.3), scheme="rank_one", where="*")
        assert_forward(model, torch.randn(*shape, fan_in), dtype, **fields)


def test_more_blocks_than_a_program_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flipout.ops.triton.rank_one_flips._HALVES", 8)
    model = flipout.perturb(nn.Linear(600, 300), flipout.Rademacher(0.3), scheme="rank_one", where="*")
    assert_forward(model, torch.randn(3, 600), torch.float32)


@pytest.mark.parametrize("programs", [1, 100])
def test_rows_of_one_or_of_several_programs(programs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_HALVES", 4), ("_PROGRAMS", programs)):
        monkeypatch.setattr(f"flipout.ops.triton.rank_one_flips.{name}", value)
    model = flipout.perturb(nn.Linear(70, 300), flipout.Rademacher(0.3), scheme="rank_one", where="*")
    assert_forward(model, torch.randn(3, 70), torch.float32, antithetic=True)


@pytest.mark.parametrize("where", ["weight", "*"])
def test_a_bias_is_added_in_the_same_launch(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = import_module("flipout.ops.triton.rank_one_flips")
    launched = Mock(wraps=kernels.launch)
    monkeypatch.setattr(kernels, "launch", launched)
    model = flipout.perturb(nn.Linear(9, 5), flipout.Rademacher(0.3), scheme="rank_one", where=where).to(DEVICE)
    added = Mock(wraps=flipout.RankOne.add_vector)
    monkeypatch.setattr(flipout.RankOne, "add_vector", added)
    with torch.no_grad(), choosing("triton"):
        model(torch.randn(4, 9, device=DEVICE))
    assert launched.call_count == 1
    assert not added.called


def test_what_the_kernel_takes() -> None:
    """Rows with adjacent features below double precision, under the signs of an entire Parameter."""
    signs, x = Signs(5, 0, 4, False), torch.randn(4, 9, device=DEVICE)
    part = Signs(5, 0, 4, False, Part(2, 6, 10))
    cases = [(x, signs, -1), (x.double(), signs, -1), (x.T.contiguous().T, signs, -1), (x, part, -1)]
    with choosing("triton"):
        taken = [chosen("rank_one_terms", *case, required=False) is not None for case in cases]
    assert taken == [True, False, False, False]


def test_a_bias_whose_numbers_are_not_adjacent() -> None:
    layer = nn.Linear(9, 5)
    layer.bias = nn.Parameter(torch.randn(5, 2)[:, 0])
    model = flipout.perturb(layer, flipout.Rademacher(0.3), scheme="rank_one", where="weight")
    assert_forward(model, torch.randn(4, 9), torch.float32)
