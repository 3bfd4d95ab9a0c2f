"""Each wrong layer fails the check that is about its error, and the right one passes all."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from flipout import testing

from . import wrong_layers as wrong

TOKENS, PICTURES = (4, 6, 5), (3, 2, 6, 6)
ONE_WEIGHT, SPREAD, SHAPE = "one weight per example", "spread of the weights", "shape of the noise"
EXAMPLES, GRADIENTS, QUIET = "independent examples", "unbiased gradients", "no noise when disabled"


def batch(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(("make", "shape"), [(wrong.linear, TOKENS), (wrong.conv, PICTURES)])
def test_the_right_layer_passes(make, shape) -> None:
    layer = make(wrong.Right)
    claim = replace(layer.claim, kl=lambda _: layer.kl().sum())
    report = testing.assert_conforms(layer, batch(*shape), claim, draws=400)
    assert report.names("not applicable") == ["independent layers"]


@pytest.mark.parametrize(
    ("kind", "failing"),
    [
        (wrong.SignsPerPosition, {ONE_WEIGHT, GRADIENTS}),
        (wrong.FloatSigns, {SPREAD, SHAPE, GRADIENTS}),
        (wrong.SkewedSigns, {SPREAD, SHAPE, EXAMPLES}),
        (wrong.MeanInDelta, {SPREAD}),
        (wrong.UniformNoise, {SHAPE}),
        (wrong.NoiseInEval, {QUIET}),
        (wrong.FaintNoiseInEval, {QUIET}),
        (wrong.TenPercentWide, {SPREAD}),
        (wrong.SharedByPairs, {EXAMPLES}),
        (wrong.LouderForLargeInputs, {SPREAD}),
        (wrong.DetachedSpread, {GRADIENTS}),
    ],
)
def test_a_wrong_layer_fails_what_is_wrong_with_it(kind: type[wrong.Right], failing: set[str]) -> None:
    torch.manual_seed(0)
    layer = wrong.linear(kind)
    report = testing.check(layer, batch(*TOKENS), layer.claim, draws=600)
    failed = set(report.names("failed"))
    assert failed >= failing, report
    # Independence holds in all but one of them, and the mean and the rest of the list in all.
    assert not failed & ({"mean of the weights", EXAMPLES} - failing), report


def test_a_gradient_that_is_wrong_in_one_parameter_fails() -> None:
    """No single entry shows it, nor do all together."""
    torch.manual_seed(0)
    layer = wrong.linear(wrong.GradientOfSpread)
    report = testing.check(layer, batch(*TOKENS), layer.claim, draws=1000, only=[GRADIENTS])
    assert report.names("failed") == [GRADIENTS]
    assert "in leaf 2 of 3 it is 1.5" in report[GRADIENTS].sentence
    assert report[GRADIENTS].seen == pytest.approx(1.5, abs=0.2)


def test_signs_per_pixel_fail() -> None:
    layer = wrong.conv(wrong.SignsPerPosition)
    report = testing.check(layer, batch(*PICTURES), layer.claim, draws=100, only=[ONE_WEIGHT])
    assert report.names("failed") == [ONE_WEIGHT]
    assert "16 positions" in report[ONE_WEIGHT].sentence  # of 36: the others see padding


def test_a_layer_that_seeds_the_generator_fails() -> None:
    layer = wrong.linear(wrong.Reseeds)
    report = testing.check(layer, batch(*TOKENS), layer.claim, draws=100, only=["fresh noise"])
    assert "the layer seeds it" in report["fresh noise"].sentence
    assert not report.conforms


def test_noise_that_is_held_is_not_fresh() -> None:
    layer = wrong.linear(wrong.HeldNoise)
    report = testing.check(layer, batch(*TOKENS), layer.claim, draws=100)
    assert {"fresh noise", SPREAD} <= set(report.names("failed"))
    assert "no noise" in report[ONE_WEIGHT].sentence
    assert report[ONE_WEIGHT].outcome == report[EXAMPLES].outcome == "not applicable"


@pytest.mark.parametrize("redraw", [False, True])
def test_noise_redrawn_at_every_time_step_fails(redraw: bool) -> None:
    torch.manual_seed(0)
    layer = wrong.RedrawnSteps(redraw=redraw)
    names = [ONE_WEIGHT, EXAMPLES]
    report = testing.check(layer, batch(3, 6, 4), layer.claim, positions=(1,), only=names, draws=1000)
    assert report[ONE_WEIGHT].outcome == ("failed" if redraw else "passed"), report
    assert report[EXAMPLES].outcome == "not applicable"


def test_one_weight_for_all_examples_of_a_recurrent_layer_fails() -> None:
    rnn = nn.RNN(4, 4, batch_first=True, bias=False)
    claim = testing.Claim(rnn, spread={"weight_hh_l0": 0.3})
    report = testing.check(lambda x: claim.run(claim.draw(), x), batch(3, 6, 4), claim, draws=100)
    assert report.names("failed") == [EXAMPLES]


@pytest.mark.parametrize(
    ("kl", "failing"),
    [
        (lambda layer, x: layer.kl().sum(), []),
        (lambda layer, x: layer.kl().mean(), ["KL in closed form"]),
        (lambda layer, x: 2 * layer.kl().sum(), ["KL in closed form"]),
        (lambda layer, x: x.shape[1] * layer.kl().sum(), ["KL in closed form", "KL counted once"]),
        (lambda layer, x: len(x) * layer.kl().sum(), ["KL in closed form", "KL counted once"]),
    ],
    ids=["sum", "mean", "twice", "per step", "per example"],
)
def test_a_wrong_kl_fails(kl, failing: list[str]) -> None:
    layer = wrong.linear(wrong.Right)
    claim = replace(layer.claim, kl=lambda x: kl(layer, x))
    names = ["KL in closed form", "KL counted once"]
    assert testing.check(layer, batch(*TOKENS), claim, only=names).names("failed") == failing


def test_a_kl_that_grows_with_every_call_fails() -> None:
    layer, calls = wrong.linear(wrong.Right), []
    claim = replace(layer.claim, kl=lambda x: (calls.append(x), len(calls) * layer.kl().sum())[1])
    assert testing.check(layer, batch(4, 5), claim, only=["KL counted once"]).names("failed") == ["KL counted once"]


def test_a_prior_variance_used_as_a_standard_deviation_fails() -> None:
    layer = wrong.linear(wrong.Right)
    claim = replace(layer.claim, kl=lambda _: layer.kl().sum(), prior=(0.0, 2.0**0.5))
    assert not testing.check(layer, batch(4, 5), claim, only=["KL in closed form"]).conforms


class Tied(nn.Module):
    """A layer that is used twice, under two names."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.first = self.second = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).tanh())


def test_a_tied_weight_counted_twice_fails() -> None:
    layer = wrong.Right(nn.Linear(4, 4, bias=False), nn.functional.linear, -1)
    claim = testing.Claim(
        Tied(nn.Linear(4, 4, bias=False)), {"first.weight": layer.weight}, {"first.weight": layer.std}, prior=(0.0, 1.0)
    )
    for count, outcome in ((1, "passed"), (2, "failed")):
        counted = replace(claim, kl=lambda _, count=count: count * layer.kl().sum())
        report = testing.check(Tied(layer), batch(3, 4), counted, only=["KL in closed form"])
        assert report["KL in closed form"].outcome == outcome


@pytest.mark.parametrize("same", [False, True])
def test_layers_that_share_their_noise_fail(same: bool) -> None:
    layers = [wrong.linear(wrong.Right) for _ in range(2)]

    def pair(x: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.get_rng_state()
        first = layers[0](x)
        if same:
            torch.set_rng_state(state)
        return first, layers[1](x)

    report = testing.check(layers[0], batch(3, 5), testing.Claim(pair=pair), only=["independent layers"], draws=300)
    assert report["independent layers"].outcome == ("failed" if same else "passed"), report
