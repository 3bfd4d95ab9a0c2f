"""Recalibration finds the number that was hidden, and says that it was fitted."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from flipout.bayes import NumberScores, Prediction, evaluate, likelihoods, recalibrate, reliability
from flipout.bayes._recalibration import Recalibration
from flipout.errors import InvalidArgument, InvalidInput, Unsupported

GENERATOR = torch.Generator().manual_seed(3)


def numbers(std: float = 1.0) -> tuple[Prediction, Tensor]:
    """Noise of standard deviation 2.5 around the mean of samples that are equal, where the prediction says `std`."""
    mean = torch.randn(1, 4000, 1, generator=GENERATOR, dtype=torch.float64)
    target = mean[0] + 2.5 * torch.randn(4000, 1, generator=GENERATOR, dtype=torch.float64)
    return Prediction.from_outputs(mean.expand(3, -1, -1), likelihoods.Gaussian(std)), target


def test_the_scale_of_numbers() -> None:
    """The likeliest scale is the root mean squared error over the predicted deviation: 2.5 here, ± 2.5 / √8000."""
    prediction, target = numbers()
    found = recalibrate(prediction, target)
    error = (target - prediction.mean).square().mean().sqrt().item()
    assert found.kind == "scale"
    assert found.value == pytest.approx(error, rel=1e-6)
    assert found.nll == pytest.approx(math.log(error * math.sqrt(2 * math.pi)) + 0.5)
    assert found.nll < found.nll_before
    later, unseen = numbers()
    scores = evaluate(found(later), unseen)
    assert isinstance(scores, NumberScores)
    assert scores.coverage[0.9] == pytest.approx(0.9, abs=0.025)


def test_noise_and_weights_are_scaled_alike() -> None:
    outputs = torch.randn(5, 200, 1, generator=GENERATOR, dtype=torch.float64)
    prediction = Prediction.from_outputs(outputs, likelihoods.Gaussian(0.1))
    found = recalibrate(prediction, torch.randn(200, 1, generator=GENERATOR, dtype=torch.float64))
    after = found(prediction)
    torch.testing.assert_close(after.mean, prediction.mean)
    for name in ("total", "aleatoric", "epistemic"):
        torch.testing.assert_close(getattr(after, name), found.value**2 * getattr(prediction, name))
    for here, there in zip(after.interval(), prediction.interval(), strict=True):
        torch.testing.assert_close(here - after.mean, found.value * (there - prediction.mean))


def test_the_temperature_of_classes() -> None:
    """Targets drawn from softmax(logits), where the network's logits are three times as large."""
    logits = 2 * torch.randn(8000, 4, generator=GENERATOR, dtype=torch.float64)
    y = torch.multinomial(logits.softmax(-1), 1, generator=GENERATOR).squeeze(1)
    sure = Prediction.from_outputs(3 * logits.expand(2, -1, -1), "categorical")
    found = recalibrate(sure, y)
    assert found.kind == "temperature"
    assert found.value == pytest.approx(3, rel=0.05)
    assert reliability(found(sure), y).ece < 0.02 < 0.1 < reliability(sure, y).ece
    coin = Prediction.from_outputs(3 * logits[None, :, 0], "bernoulli")
    heads = torch.bernoulli(logits[:, 0].sigmoid(), generator=GENERATOR)
    assert recalibrate(coin, heads).value == pytest.approx(3, rel=0.1)


def test_ignored_targets_do_not_count() -> None:
    logits = torch.randn(1, 300, 3, generator=GENERATOR)
    y = torch.multinomial(logits[0].softmax(-1), 1, generator=GENERATOR).squeeze(1)
    padded = torch.cat((y, torch.full((50,), -100)))
    found = recalibrate(Prediction.from_outputs(logits, "categorical"), y)
    more = torch.cat((logits, torch.randn(1, 50, 3)), 1)
    assert repr(recalibrate(Prediction.from_outputs(more, "categorical"), padded)) == repr(found)


def test_targets_that_are_all_ignored_fit_nothing() -> None:
    prediction = Prediction.from_outputs(torch.randn(2, 5, 3), likelihoods.Categorical(ignore=-1))
    with pytest.raises(InvalidInput, match=r"all 5 targets are ignored by Categorical\(ignore=-1\)"):
        recalibrate(prediction, torch.full((5,), -1))


def test_it_is_said() -> None:
    prediction, target = numbers()
    found = recalibrate(prediction, target)
    assert repr(found).startswith("Recalibration(scale=2.")
    assert "examples=4000" in repr(found)
    after = found(prediction)
    assert "recalibrated: scale 2." in repr(after)
    assert "fitted on 4000 held-out targets" in repr(after)
    assert after.rescale(2.0).note == after.note


def test_what_cannot_be_recalibrated() -> None:
    prediction, target = numbers()
    found = recalibrate(prediction, target)
    with pytest.raises(InvalidArgument, match="this prediction is recalibrated: scale"):
        recalibrate(found(prediction), target)
    with pytest.raises(InvalidArgument, match="this prediction is recalibrated: scale"):
        found(found(prediction))
    classes = Prediction.from_outputs(torch.randn(2, 5, 3), "categorical")
    with pytest.raises(InvalidArgument, match=r"A scale was fitted, .* is recalibrated by a temperature"):
        found(classes)
    with pytest.raises(InvalidInput, match=r"recalibrate: targets of shape \(4000,\)"):
        recalibrate(prediction, target.squeeze(1))
    for likelihood, message in ((None, "no likelihood"), (likelihoods.Poisson(), "Poisson targets")):
        with pytest.raises(Unsupported, match=f"this prediction has {message}; a temperature needs classes"):
            recalibrate(Prediction.from_outputs(torch.randn(2, 5), likelihood), torch.zeros(5))


@pytest.mark.parametrize("of_numbers", [False, True], ids=["classes", "numbers"])
@pytest.mark.parametrize("is_too_sure", [False, True], ids=["unsure", "sure"])
def test_the_end_of_the_range_is_named_with_its_reasons(of_numbers: bool, is_too_sure: bool) -> None:
    """A wide posterior is sound but unsure of 540 targets. Targets of other inputs make every prediction too sure."""
    y = torch.arange(540) % 3
    if of_numbers:
        mean = y.double().unsqueeze(1)
        prediction = Prediction.from_outputs(mean.unsqueeze(0), likelihoods.Gaussian(1.0))
        target = mean + (1e3 if is_too_sure else 1e-3)
    else:
        logits = torch.nn.functional.one_hot(y, 3).double() * (100 if is_too_sure else 0.1)
        prediction, target = Prediction.from_outputs(logits.unsqueeze(0), "categorical"), y
        target = (y + torch.arange(540) // 3) % 3 if is_too_sure else y
    kind = "scale" if of_numbers else "temperature"
    value = "20.1" if is_too_sure else "0.0498"
    why = "too confident for these targets.*in the same order" if is_too_sure else "not confident.*use more.*kl_weight"
    with pytest.warns(RuntimeWarning, match=rf"the {kind} {value} is at the end of what is tried: .*{why}"):
        recalibrate(prediction, target)


def test_only_a_prediction_is_recalibrated() -> None:
    outputs, y = torch.randn(1, 200, 3, generator=GENERATOR), torch.randint(3, (200,), generator=GENERATOR)
    fitted: Any = Recalibration("temperature", 2.0, 200, 1.0, 0.9)
    again: Any = recalibrate
    for call in (lambda: again(outputs, y), lambda: fitted(outputs)):
        with pytest.raises(InvalidInput, match=r"Tensor'> given; expected a Prediction: predict\(elbo, x\)"):
            call()


def test_a_plain_network_stays_one() -> None:
    """The weights of one network are known, before a recalibration and after it."""
    outputs = torch.randn(1, 200, 3, generator=GENERATOR)
    y = torch.multinomial(outputs[0].softmax(-1), 1, generator=GENERATOR).squeeze(1)
    plain = Prediction.from_outputs(outputs, "categorical")
    after = recalibrate(plain, y)(plain)
    assert not after.epistemic.any()
    assert torch.equal(after.total, after.aleatoric)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_outputs_in_half_precision_are_divided_in_single(dtype: torch.dtype) -> None:
    logits = torch.randn(40, 3, generator=GENERATOR)
    y = torch.multinomial(logits.softmax(-1), 1, generator=GENERATOR).squeeze(1)
    outputs = torch.stack((2 * logits, 3 * logits)).to(dtype)
    exact = Prediction.from_outputs(outputs.float(), "categorical")
    half = Prediction.from_outputs(outputs, "categorical")
    expected, found = recalibrate(exact, y), recalibrate(half, y)
    assert found.value == pytest.approx(expected.value, rel=1e-4)
    torch.testing.assert_close(found(half).mean, expected(exact).mean)
