"""Scores against their definitions, on probabilities whose answer is known."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from flipout.bayes import Prediction, evaluate, reliability
from flipout.errors import InvalidArgument, InvalidInput

P = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
Y = torch.tensor([0, 1, 1, 2])


@given(st.integers(2, 6), st.integers(1, 40))
def test_scores_by_hand(classes: int, count: int) -> None:
    p, y = torch.randn(count, classes).softmax(-1), torch.randint(classes, (count,))
    scores = evaluate(p, y)
    truth = torch.nn.functional.one_hot(y, classes)
    assert scores.accuracy == pytest.approx((p.argmax(1) == y).double().mean().item())
    assert scores.nll == pytest.approx(-p[torch.arange(count), y].log().mean().item(), rel=1e-5)
    assert scores.brier == pytest.approx((p - truth).square().sum(1).mean().item(), rel=1e-5)


def test_ece_by_hand() -> None:
    """Confidences 0.7, 0.8, 0.5, 0.6: right, right, wrong, right; two bins of them below and above 0.65."""
    diagram = reliability(P, Y, bins=20)
    assert diagram.ece == pytest.approx((0.3 + 0.2 + 0.5 + 0.4) / 4)
    single_bin = reliability(P, Y, bins=1)
    assert single_bin.ece == pytest.approx(abs(0.75 - 0.65))
    assert evaluate(P, Y, bins=1).ece == single_bin.ece
    assert single_bin.count.tolist() == [4]
    assert np.isnan(diagram.accuracy[0])
    sure = reliability(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    assert sure.count[-1] == 1


def test_calibrated_probabilities_have_a_small_ece_and_others_do_not() -> None:
    """Targets drawn from p. The largest of 15 gaps is a binomial error; sharpened probabilities are over-confident."""
    logits = torch.randn(20_000, 4) * 2
    p = logits.softmax(-1)
    y = torch.multinomial(p, 1).squeeze(1)
    diagram = reliability(p, y)
    full = diagram.count > 200
    error = np.sqrt(diagram.confidence * (1 - diagram.confidence) / diagram.count)
    assert np.abs((diagram.accuracy - diagram.confidence) / error)[full].max() < 5
    assert diagram.ece < 0.015
    assert reliability((3 * logits).softmax(-1), y).ece > 0.1
    assert evaluate(p, y).nll < evaluate((3 * logits).softmax(-1), y).nll


def test_two_classes_as_one_column() -> None:
    p, y = torch.tensor([0.25, 0.875, 0.5625]), torch.tensor([0, 1, 0])
    assert evaluate(p, y) == evaluate(torch.stack((1 - p, p), 1), y)
    assert evaluate(p, y).brier == pytest.approx(2 * (0.25**2 + 0.125**2 + 0.5625**2) / 3)


def test_a_sure_mistake_is_finite() -> None:
    assert math.isfinite(evaluate(torch.tensor([[1.0, 0.0]]), torch.tensor([1])).nll)


def test_the_figure(tmp_path: Path) -> None:
    reliability(P, Y).plot(tmp_path / "reliability.svg")
    assert (tmp_path / "reliability.svg").stat().st_size > 1000


def test_they_are_shown_in_one_line() -> None:
    assert repr(evaluate(P, Y)) == "Scores(accuracy=0.75, nll=0.57365, brier=0.305, ece=0.35)"
    assert repr(reliability(P, Y)) == "Reliability(bins=15, examples=4, ece=0.35)"


BAD: list[tuple[Any, Any, str]] = [
    (torch.randn(4, 3), Y, "negative, or do not add up to 1. For logits"),
    (P, Y[:3], r"shape \(4, 3\) and targets of shape \(3,\)"),
    (P, Y.float(), "torch.float32; expected"),
    (P, Y + 1, "Targets from 1 to 3; there are 3 classes"),
    (P, Y - 1, "Targets from -1 to 1"),
    (P[:0], Y[:0], "N ≥ 1"),
    (P.unsqueeze(0), Y, r"shape \(1, 4, 3\)"),
    (P * math.nan, Y, "do not add up to 1"),
]


@pytest.mark.parametrize(("probabilities", "target", "message"), BAD, ids=[message for *_, message in BAD])
def test_bad_probabilities(probabilities: Tensor, target: Tensor, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        evaluate(probabilities, target)


def test_what_is_no_tensor() -> None:
    prediction = Prediction(P, P, P, P, P, None, None, 1, 1)
    for score in (evaluate, reliability):
        with pytest.raises(InvalidInput, match=r"probabilities of .*Prediction'>; expected a tensor: give its \.mean"):
            score(prediction, Y)  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidInput, match=r"targets of <class 'list'>; expected a tensor: torch\.as_tensor"):
            score(P, Y.tolist())  # pyright: ignore[reportArgumentType]


def test_bins_are_counted() -> None:
    with pytest.raises(InvalidArgument, match=r"bins=0\): expected a whole number ≥ 1"):
        reliability(P, Y, bins=0)


def test_small_probabilities_count_in_full() -> None:
    p = torch.tensor([[1.0, 1e-30]], dtype=torch.float64)
    assert evaluate(p, torch.tensor([1])).nll == pytest.approx(30 * math.log(10))
