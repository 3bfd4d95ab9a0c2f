"""Reliability diagrams against their definition, on probabilities whose answer is known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flipout._student import share_interval
from flipout.bayes import Prediction, likelihoods, reliability
from flipout.errors import InvalidArgument, InvalidInput

P = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
Y = torch.tensor([0, 1, 1, 2])


def test_ece_by_hand() -> None:
    """Confidences 0.7, 0.8, 0.5, 0.6: right, right, wrong, right; two bins of them below and above 0.65."""
    diagram = reliability(P, Y, bins=20)
    assert diagram.ece == pytest.approx((0.3 + 0.2 + 0.5 + 0.4) / 4)
    single_bin = reliability(P, Y, bins=1)
    assert single_bin.ece == pytest.approx(abs(0.75 - 0.65))
    assert single_bin.count.tolist() == [4]
    assert np.isnan(diagram.accuracy[0])
    sure = reliability(torch.tensor([[1.0, 0.0]]), torch.tensor([0]))
    assert sure.count[-1] == 1


def test_a_prediction_says_where_its_classes_are() -> None:
    expected = reliability(P, Y, bins=13)
    layouts: list[tuple[torch.Tensor, Any, torch.Tensor]] = [
        (P.log(), "categorical", Y),
        (P.log().T.unsqueeze(0), likelihoods.Categorical(1), Y.unsqueeze(0)),  # (N, classes, targets)
    ]
    for logits, likelihood, target in layouts:
        found = reliability(Prediction.from_outputs(logits.unsqueeze(0), likelihood), target, bins=13)
        assert found.ece == pytest.approx(expected.ece)
        assert found.count.tolist() == expected.count.tolist()
    binary = torch.tensor([0.3, 0.8])
    prediction = Prediction.from_outputs(binary.logit()[None, :, None], "bernoulli")
    for target in (torch.tensor([[0.0], [1.0]]), torch.tensor([[0], [1]])):
        assert reliability(prediction, target).ece == pytest.approx(0.25)


def test_ignored_targets_do_not_count() -> None:
    prediction = Prediction.from_outputs(P.log().unsqueeze(0), likelihoods.Categorical(ignore=2))
    assert reliability(prediction, Y).count.sum() == 3


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


def test_it_is_drawn_and_shown(tmp_path: Path) -> None:
    reliability(P, Y).plot(tmp_path / "reliability.svg")
    assert (tmp_path / "reliability.svg").stat().st_size > 1000
    assert repr(reliability(P, Y)) == "Reliability(bins=15, examples=4, ece=0.35)"


def test_the_diagram_has_counts_and_wilsons_intervals() -> None:
    diagram = reliability(P, Y, bins=10)
    above, below = diagram.plot().axes
    (bars,) = above.containers
    ends = np.array(bars.lines[2][0].get_segments())[:, :, 1]  # of each error bar, low and high
    full = diagram.count > 0
    expected = [share_interval(*pair) for pair in zip(diagram.accuracy[full], diagram.count[full], strict=True)]
    assert ends == pytest.approx(np.array(expected))
    assert [bar.get_height() for bar in below.patches] == list(diagram.count)


def test_what_has_no_classes_is_refused() -> None:
    numbers = Prediction.from_outputs(P.unsqueeze(0), likelihoods.Gaussian())
    with pytest.raises(InvalidInput, match=r"Gaussian targets, which are numbers.*evaluate\(prediction, target\)\.cal"):
        reliability(numbers, P)
    with pytest.raises(InvalidInput, match="has no likelihood; expected classes"):
        reliability(Prediction.from_outputs(P.unsqueeze(0)), P)
    with pytest.raises(InvalidInput, match="expected the classes 0 and 1 themselves"):
        reliability(Prediction.from_outputs(P.unsqueeze(0), "bernoulli"), P)
    with pytest.raises(InvalidInput, match=r"targets of <class 'list'>; expected a tensor: torch\.as_tensor"):
        reliability(P, Y.tolist())  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument, match=r"bins=0\): expected a whole number ≥ 1"):
        reliability(P, Y, bins=0)
