"""Scores against their definitions, on predictions whose answer is known."""

import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from torch import Tensor

from flipout.bayes import NumberScores, Prediction, Scores, evaluate, likelihoods, ood_auroc
from flipout.errors import InvalidArgument, InvalidInput, Unsupported

P = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
Y = torch.tensor([0, 1, 1, 2])


def classes(p: Tensor, likelihood: Any = "categorical") -> Prediction:
    """The prediction of one network with these probabilities."""
    logits = p.logit() if likelihood == "bernoulli" else p.log()
    return Prediction.from_outputs(logits.unsqueeze(0), likelihood)


def class_scores(prediction: Prediction, target: Tensor, **how: Any) -> Scores:
    scores = evaluate(prediction, target, **how)
    assert isinstance(scores, Scores)
    return scores


def number_scores(prediction: Prediction, target: Tensor, **how: Any) -> NumberScores:
    scores = evaluate(prediction, target, **how)
    assert isinstance(scores, NumberScores)
    return scores


@given(st.integers(2, 6), st.integers(1, 40))
def test_classes_by_hand(count: int, examples: int) -> None:
    p, y = torch.randn(examples, count).softmax(-1), torch.randint(count, (examples,))
    scores = class_scores(classes(p), y)
    truth = torch.nn.functional.one_hot(y, count)
    assert scores.accuracy == pytest.approx((p.argmax(1) == y).double().mean().item())
    assert scores.nll == pytest.approx(-p[torch.arange(examples), y].log().mean().item(), rel=1e-5)
    assert scores.brier == pytest.approx((p - truth).square().sum(1).mean().item(), rel=1e-5)
    present = y.unique()
    if len(present) < 2:
        assert scores.auroc is None
    elif len(present) == count > 2:
        expected = roc_auc_score(y, p.double() / p.double().sum(1, keepdim=True), multi_class="ovr")
        assert scores.auroc == pytest.approx(float(expected), abs=1e-6)


def test_the_core_alone_scores_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("sklearn", "scipy")]:
        monkeypatch.setitem(sys.modules, name, None)
    assert class_scores(classes(P), Y).auroc is not None
    assert ood_auroc(torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.4])) == 1.0


@pytest.mark.parametrize("shape", [(3,), (3, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool], ids=str)
def test_two_classes_with_one_probability(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    p, y = torch.tensor([0.25, 0.875, 0.5625]), torch.tensor([0, 1, 0])
    found = class_scores(classes(p.view(shape), "bernoulli"), y.view(shape).to(dtype))
    expected = class_scores(classes(torch.stack((1 - p, p), 1)), y)
    for name, value in vars(expected).items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-5), name
    assert found.brier == pytest.approx(2 * (0.25**2 + 0.125**2 + 0.5625**2) / 3, rel=1e-5)
    assert found.auroc == 1.0


def test_several_targets_of_an_example_and_padding() -> None:
    prediction = classes(P.view(2, 2, 3), likelihoods.Categorical(ignore=2))
    scores = class_scores(prediction, Y.view(2, 2))
    assert scores.accuracy == pytest.approx(2 / 3)
    assert scores.nll == pytest.approx(-np.log([0.7, 0.8, 0.3]).mean())


def test_bins() -> None:
    assert class_scores(classes(P), Y, bins=1).ece == pytest.approx(abs(0.75 - 0.65))
    with pytest.raises(InvalidArgument, match=r"bins=0\): expected a whole number ≥ 1"):
        evaluate(classes(P), Y, bins=0)


def test_a_sure_mistake_is_finite_and_small_probabilities_count_in_full() -> None:
    sure = Prediction.from_outputs(torch.tensor([[[math.inf, 0.0]]]).clamp(max=1e30), "categorical")
    assert math.isfinite(class_scores(sure, torch.tensor([1])).nll)
    small = classes(torch.tensor([[1.0, 1e-30]], dtype=torch.float64))
    assert class_scores(small, torch.tensor([1])).nll == pytest.approx(30 * math.log(10))


def test_many_classes_have_no_auroc() -> None:
    assert class_scores(classes(torch.rand(200, 101).softmax(1)), torch.arange(200) % 101).auroc is None


def test_numbers_by_hand() -> None:
    """One Gaussian of standard deviation 2: every score has a formula."""
    mean, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[1.0], [1.0], [-4.0]])
    scores = number_scores(Prediction.from_outputs(mean.unsqueeze(0), likelihoods.Gaussian(2.0)), y)
    assert scores.rmse == pytest.approx(math.sqrt((1 + 0 + 36) / 3))
    assert scores.nll == pytest.approx(37 / 3 / 8 + math.log(2 * math.sqrt(2 * math.pi)))
    assert scores.sharpness == pytest.approx(2 * 2 * 1.6448536, rel=1e-6)
    assert scores.coverage == pytest.approx({0.5: 2 / 3, 0.8: 2 / 3, 0.9: 2 / 3, 0.95: 2 / 3})
    z = (y - mean).double() / 2
    normal = torch.distributions.Normal(0.0, 1.0)
    crps = 2 * (z * (2 * normal.cdf(z) - 1) + 2 * normal.log_prob(z).exp() - math.pi**-0.5)
    assert scores.crps == pytest.approx(crps.mean().item())
    assert scores.calibration.examples == 3
    assert repr(scores) == (
        "NumberScores(nll=3.1538, rmse=3.5119, crps=2.0011, "
        "coverage={0.5: 0.667, 0.8: 0.667, 0.9: 0.667, 0.95: 0.667}, sharpness=6.5794)"
    )


def test_a_proper_score_prefers_the_truth() -> None:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(1, 5000, 1, generator=generator)
    y = mean[0] + torch.randn(5000, 1, generator=generator)
    right, *wrong = (number_scores(Prediction.from_outputs(mean, likelihoods.Gaussian(s)), y) for s in (1.0, 0.5, 2.0))
    for scores in wrong:
        assert scores.nll > right.nll
        assert scores.crps > right.crps
        assert scores.calibration.error > right.calibration.error


def test_counts() -> None:
    log_rates = torch.full((1, 1000), math.log(4.0))
    prediction = Prediction.from_outputs(log_rates, "poisson")
    y = torch.poisson(log_rates[0].exp(), generator=torch.Generator().manual_seed(0)).long()
    scores = number_scores(prediction, y, levels=[0.9])
    assert scores.nll == pytest.approx(-torch.distributions.Poisson(4.0).log_prob(y).mean().item(), rel=1e-5)
    assert scores.rmse == pytest.approx(2, abs=0.15)
    assert 0.9 < scores.coverage[0.9] < 0.98  # at least the level: [1, 8] has probability 0.96
    assert scores.sharpness == 7


def test_the_form_of_earlier_versions_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"evaluate\(prediction, target\) with what predict returned"):
        old = evaluate(P, Y)
    assert isinstance(old, Scores)
    for name, value in vars(class_scores(classes(P), Y)).items():
        assert getattr(old, name) == pytest.approx(value, rel=1e-5), name
    p, y = torch.tensor([0.25, 0.875, 0.5625]), torch.tensor([0, 1, 0])
    with pytest.warns(DeprecationWarning, match="goes in the next version"):
        assert evaluate(p, y) == evaluate(torch.stack((1 - p, p), 1), y)


def test_they_are_shown_in_one_line() -> None:
    shown = "Scores(accuracy=0.75, nll=0.57365, brier=0.305, ece=0.35, auroc=1)"
    assert repr(evaluate(classes(P), Y)) == shown


def numbers(count: int = 2) -> Prediction:
    return Prediction.from_outputs(torch.randn(count, 4, 1), likelihoods.Gaussian())


BAD: list[tuple[Any, Any, type[Exception], str]] = [
    (classes(P), Y[:3], InvalidInput, r"evaluate: targets of shape \(3,\); this prediction, with a mean of shape \(4,"),
    (classes(P), P, InvalidInput, r"targets of shape \(4, 3\).*has targets of shape \(4,\)"),
    (classes(P), Y + 1, InvalidInput, "Targets from 1 to 3; there are 3 classes"),
    (classes(P), Y - 1, InvalidInput, "Targets from -1 to 1"),
    (classes(P), Y.tolist(), InvalidInput, "targets of <class 'list'>"),
    (classes(P), Y - 0.5, InvalidInput, r"targets of dtype torch.float32, from -0.5 to 1.5; expected .*target\.long"),
    (classes(P * math.nan), Y, InvalidInput, "do not add up to 1"),
    (numbers(), torch.zeros(4), InvalidInput, r"of shape \(4,\).*Nothing is broadcast\. Write target\.view\(4, 1\)"),
    (numbers(), torch.full((4, 1), math.nan), InvalidInput, "infinite or not a number"),
    (numbers(), torch.zeros(4, 1, dtype=torch.complex64), InvalidInput, r"complex targets, of dtype .*: target\.real"),
    (
        Prediction.from_outputs(torch.randn(2, 4)),
        torch.zeros(4),
        Unsupported,
        r"without a likelihood nothing is known.*predict\(elbo, x\)",
    ),
    ("prediction", Y, InvalidInput, r"<class 'str'> given; expected what predict returned"),
]


@pytest.mark.parametrize(("prediction", "target", "error", "message"), BAD, ids=[message for *_, message in BAD])
def test_bad_input(prediction: Any, target: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        evaluate(prediction, target)


def test_one_level_is_a_number() -> None:
    scores = evaluate(numbers(), torch.zeros(4, 1), levels=0.9)
    assert isinstance(scores, NumberScores)
    assert list(scores.coverage) == [0.9]


@pytest.mark.parametrize("levels", [1.5, "0.9", None, True])
def test_other_single_levels_are_refused(levels: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"level=.*\): expected a probability between 0 and 1"):
        evaluate(numbers(), torch.zeros(4, 1), levels=levels)


@pytest.mark.parametrize("level", [0, 1, -0.1, 1.5, math.nan, "0.9"])
def test_levels_are_probabilities(level: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"level=.*\): expected a probability between 0 and 1"):
        evaluate(numbers(), torch.zeros(4, 1), levels=[0.5, level])
