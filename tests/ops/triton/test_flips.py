"""Signs made where something is flipped or added: the outputs of the definition."""

import pytest
import torch
from torch import nn

import flipout
from tests.ops.triton.kernels import CLOSE, MARKS
from tests.ops.triton.populations import assert_forward

pytestmark = MARKS
FIELDS = [{}, {"first": 3}, {"antithetic": True}, {"rows": 3}, {"group": 4}, {"group": 5, "first": 2, "rows": 2}]


@pytest.mark.parametrize("where", [None, "*"], ids=["weight", "weight and bias"])
@pytest.mark.parametrize("fields", FIELDS, ids=str)
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_outputs_of_rows(dtype: torch.dtype, fields: dict, where: str | None) -> None:
    """Several blocks of 128 signs and an end within one, odd numbers of features, groups of any layout."""
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(141, 7), flipout.MeanField(std=0.3), where=where)
    assert_forward(model, torch.randn(24, 141), dtype, **fields)


def test_other_inputs_than_rows() -> None:
    torch.manual_seed(0)
    model = flipout.perturb(nn.Sequential(nn.Linear(9, 6), nn.LayerNorm(6)), flipout.Gaussian(0.3), where="*")
    for x in (torch.randn(5, 4, 9), torch.randn(9, 5).T, torch.randn(1, 9).expand(5, 9), torch.randn(0, 9)):
        assert_forward(model, x, torch.float64)
        assert_forward(model, x, torch.float32, group=2)


def test_reused_signs() -> None:
    model = flipout.perturb(nn.Linear(9, 6), flipout.Gaussian(0.3), scheme=flipout.Flipout(reuse_signs=True), where="*")
    assert_forward(model, torch.randn(5, 9), torch.float32)
