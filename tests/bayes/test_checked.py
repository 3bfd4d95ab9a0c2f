"""Inputs of an evaluation are checked, and given as numpy arrays."""

import pytest
import torch

from flipout.bayes._checked import class_probabilities, finite_numbers
from flipout.errors import InvalidInput

P, Y = torch.tensor([[0.2, 0.8], [0.5, 0.5]]), torch.tensor([1, 0])


def test_probabilities_add_up_to_1_and_may_be_of_one_class() -> None:
    p, y = class_probabilities(P, Y)
    assert p.dtype == "float64"
    assert p.sum(1).tolist() == pytest.approx([1, 1], abs=1e-12)
    assert y.tolist() == [1, 0]
    assert class_probabilities(P[:, 1], Y)[0] == pytest.approx(p)


@pytest.mark.parametrize(
    ("p", "y", "message"),
    [
        (P.tolist(), Y, "probabilities of <class 'list'>"),
        (P, Y[:1], r"shape \(2, 2\) and targets of shape \(1,\)"),
        (P, Y.float(), "whole numbers"),
        (2 * P, Y, "do not add up to 1"),
        (P, Y + 1, "Targets from 1 to 2; there are 2 classes"),
    ],
)
def test_wrong_inputs_are_refused(p, y, message) -> None:
    with pytest.raises(InvalidInput, match=message):
        class_probabilities(p, y)


def test_numbers_are_finite() -> None:
    assert finite_numbers(torch.tensor([1, 2]), "scores").tolist() == [1.0, 2.0]
    with pytest.raises(InvalidInput, match="scores: 2 of 3 are infinite or not a number"):
        finite_numbers(torch.tensor([1.0, torch.nan, torch.inf]), "scores")
    with pytest.raises(InvalidInput, match=r"scores of shape \(1, 2\)"):
        finite_numbers(torch.zeros(1, 2), "scores")
