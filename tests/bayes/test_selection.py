"""What an uncertainty is worth: on answers that are known, and on ties."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flipout.bayes import ood_auroc, selective
from flipout.errors import InvalidInput
from tests.statistics import assert_mean


def test_ood_auroc() -> None:
    assert ood_auroc(torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.4])) == 1.0
    assert ood_auroc(torch.tensor([0.3, 0.4]), torch.tensor([0.1, 0.2])) == 0.0
    assert ood_auroc(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 3.0])) == pytest.approx((1 + 0 + 1 + 0.5) / 4)


def test_selective_prediction() -> None:
    curve = selective(torch.tensor([0.3, 0.1, 0.4, 0.2]), torch.tensor([True, True, False, False]))
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert curve.risk == pytest.approx([0.0, 0.5, 1 / 3, 0.5])
    assert curve.area == pytest.approx((0 + 0.5 + 1 / 3 + 0.5) / 4)


@given(st.lists(st.booleans(), min_size=1, max_size=20))
def test_ties_have_no_order(correct: list[bool]) -> None:
    right = torch.tensor(correct)
    curve = selective(torch.zeros(len(correct)), right)
    assert curve.risk == pytest.approx(np.full(len(correct), 1 - right.double().mean().item()))


def test_an_uncertainty_that_knows_lowers_the_risk() -> None:
    error = torch.rand(5000)
    right = torch.rand(5000) > error
    informed, blind = selective(error, right), selective(torch.rand(5000), right)
    assert informed.area < 0.7 * blind.area
    assert informed.risk[-1] == pytest.approx(blind.risk[-1])
    assert_mean((~right).double(), 0.5)


def test_the_figure(tmp_path: Path) -> None:
    figure = selective(torch.tensor([0.1, 0.2]), torch.tensor([True, False])).plot()
    figure.savefig(tmp_path / "selective.png")
    assert (tmp_path / "selective.png").stat().st_size > 1000


def test_it_is_shown_in_one_line() -> None:
    curve = selective(torch.rand(1000), torch.rand(1000) < 2)
    assert repr(curve) == "Selective(examples=1000, area=0, risk_of_all=0)"


def test_bad_numbers() -> None:
    with pytest.raises(InvalidInput, match="2 uncertainties and 3 answers"):
        selective(torch.zeros(2), torch.ones(3))
    with pytest.raises(InvalidInput, match=r"outside of shape \(0,\)"):
        ood_auroc(torch.zeros(2), torch.zeros(0))
    with pytest.raises(InvalidInput, match="uncertainty: 1 of 1"):
        selective(torch.tensor([math.nan]), torch.ones(1))
