"""Large batches: when a loss is reached, what is claimed of it, and how the networks are trained."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

import flipout
from flipout.errors import InvalidArgument
from flipout.experiments.evidence.checks import same_loss
from flipout.experiments.evidence.curves import measured_iterations
from flipout.experiments.large_batch import claims
from flipout.experiments.large_batch.curves import Curve, Curves
from flipout.experiments.large_batch.work import LargeBatchConfig
from flipout.experiments.registry import EXPERIMENTS
from flipout.experiments.running.results import MUST_HOLD, REPORTED
from flipout.experiments.training.bayes import BayesTraining, Trainer
from flipout.experiments.training.networks import convle
from flipout.experiments.training.supervised import isolated_randomness, prepare

SMALL = BayesTraining(data="digits", hidden=(8,), batch=16, iterations=5)


def curve(scheme: str, seed: int, slowness: float, noise: float = 0.0, iterations: int = 400) -> Curve:
    """A loss that falls as 1 / (1 + t / slowness)."""
    at = measured_iterations(iterations)
    falling = [1 / (1 + t / slowness) + noise * (-1) ** t for t in at]
    return Curve(scheme, seed, at, falling, [0.5] * len(at), falling, falling, falling)


def curves(flipout: float = 10.0, shared: float = 30.0, **others: float) -> Curves:
    speeds = {"shared": shared, "flipout": flipout, **others}
    return Curves(curve(name, seed, speed * 1.1**seed) for seed in range(3) for name, speed in speeds.items())


def test_looks_are_a_tenth_apart_from_the_start_to_the_end():
    at = measured_iterations(1000)
    assert (at[0], at[1], at[-1]) == (0, 1, 1000)
    assert all(after - before <= max(1.0, 0.15 * before) for before, after in pairwise(at))
    assert measured_iterations(1) == [0, 1]


def test_a_level_is_reached_between_two_looks():
    curve = Curve("shared", 0, [0, 10, 20, 30], [3.0, 2.0, 1.0, 1.5], [1.0] * 4, [0.0] * 4, [0.0] * 4, [])
    assert curve.reached("likelihood", 1.5) == 15
    assert curve.reached("total", 2.5) == 15
    assert curve.reached("likelihood", 3.0) == 0
    assert curve.reached("likelihood", 0.9) == math.inf
    assert curve.best("likelihood", 25) == 1.0
    assert curve.best("total", 10) == 3.0
    several = Curves([curve, replace(curve, seed=1, likelihood=[3.0, 2.5, 2.0, 1.2])])
    assert several.level("likelihood", 30) == 1.2  # all seeds have got there
    assert several.last("shared", "likelihood") == [1.5, 1.2]


def test_three_times_slower_is_found_to_be_three_times_slower():
    checks, numbers, paper = claims.evaluate(curves(), (0.25, 1.0), {"shared": 1.0, "flipout": 2.0})
    fewer = [check for check in checks if check.id.startswith("fewer-iterations")]
    assert [check.kind for check in fewer] == [REPORTED] * 4
    for check in fewer:
        assert check.holds
        assert check.value == pytest.approx(3.0, rel=0.03)
        assert check.interval == pytest.approx((3.0, 3.0), rel=0.07)
    (faster,) = (check for check in checks if check.id == "by-the-clock")
    assert faster.value == pytest.approx(1.5, rel=0.03)
    assert numbers["flipout / shared: time of an iteration"] == 2
    assert paper.keys() <= numbers.keys()


def test_the_bar_is_on_the_likelihood():
    checks, *_ = claims.evaluate(curves(shared=20.0), (1.0,), {"shared": 1.0, "flipout": 1.0})
    likelihood, total = (check for check in checks if check.id.startswith("fewer-iterations"))
    assert likelihood.value == pytest.approx(2.0, rel=0.03)
    assert not likelihood.holds
    assert total.holds


@pytest.mark.parametrize("without", [curves(flipout=3000.0), curves(shared=math.inf)], ids=["never", "from the start"])
def test_what_has_no_ratio_does_not_hold(without):
    checks, numbers, _ = claims.evaluate(without, (1.0,), {"shared": 1.0, "flipout": 2.0})
    for check in checks:
        if check.id.startswith(("fewer-iterations", "by-the-clock")):
            assert (check.value, check.interval, check.holds) == (None, None, False)
    assert "none" in numbers.values()


def test_local_reparameterisation_is_compared_by_its_own_spread():
    def within(speed: float) -> list[bool]:
        checks, *_ = claims.evaluate(
            curves(local_reparam=speed), (1.0,), dict.fromkeys(("shared", "flipout", "local_reparam"), 1.0)
        )
        return [check.holds for check in checks if check.quantity == "difference in standard deviations"]

    assert within(10.0) == [True, True]
    assert within(5.0) == [False, False]


def test_theory_is_refused_where_a_scheme_is_biased_or_flipout_is_noisier():
    generator = torch.Generator().manual_seed(1)
    drawn = {name: torch.randn(200, generator=generator).tolist() for name in ("shared", "flipout")}
    assert [check.holds for check in same_loss(drawn)] == [True, True]
    biased = {**drawn, "flipout": [value + 1 for value in drawn["flipout"]]}
    assert [check.holds for check in same_loss(biased)] == [False, True]
    noisy = {**drawn, "flipout": [2 * value for value in drawn["flipout"]]}
    assert [check.holds for check in same_loss(noisy)] == [True, False]
    assert {check.kind for check in same_loss(drawn)} == {MUST_HOLD}


@pytest.mark.parametrize("network", ["fc", "convle"])
def test_networks_of_one_seed_begin_alike_and_see_the_same_batches(run, network):
    config = replace(SMALL, network=network, width=1 / 16)
    prepared = prepare(config, run)
    before = torch.get_rng_state()
    with isolated_randomness(run):
        first, second = (Trainer(config, prepared, scheme, 3, run) for scheme in ("shared", "flipout"))
        other = Trainer(config, prepared, "flipout", 4, run)
        starts = [[p.clone() for p in trainer.model.parameters()] for trainer in (first, second, other)]
        first.train(2)
        second.train(2)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(starts[0], starts[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(starts[0], starts[2], strict=True))
    assert torch.equal(first.batches.get_state(), second.batches.get_state())
    assert not torch.equal(first.model.get_parameter("fc1.weight"), second.model.get_parameter("fc1.weight"))


def test_the_terms_add_up_to_the_loss(run):
    prepared = prepare(SMALL, run)
    with isolated_randomness(run):
        trainer = Trainer(SMALL, prepared, "flipout", 0, run)
        with flipout.hold(trainer.model, seed=5):
            loss = trainer.elbo(prepared.x[:50], prepared.y[:50]).loss
            terms = trainer.terms(prepared.x[:50], prepared.y[:50])
        torch.testing.assert_close(terms.sum(), loss)
        divergence = 0.1 * flipout.bayes.kl(trainer.model) / len(prepared.x)
        torch.testing.assert_close(terms[1], divergence)
        assert trainer.train(4).shape == (4, 2)
        assert trainer.model.training
        trainer.close()


def uncaptured(step):
    captured = flipout.Captured(step)
    captured._can_capture = False
    return captured


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", ["large-batch-fc", "large-batch-convle"])
def test_a_captured_step_learns_as_an_eager_one(name, tmp_path, monkeypatch):
    experiment = EXPERIMENTS[name]
    config = replace(experiment.config("smoke"), device="cuda")
    losses = []
    for folder in ("captured", "eager"):
        result = experiment.run(config, tmp_path / folder, preset="smoke")
        assert result.broken == []
        losses.append(float(str(result.measured["flipout: total loss at the end"]).partition(" ")[0]))
        monkeypatch.setattr(flipout, "capture", uncaptured)
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_convle_is_the_papers():
    network = convle((1, 28, 28), 10)
    assert [tuple(p.shape) for p in network.parameters() if p.dim() > 1] == [
        (32, 1, 5, 5),
        (64, 32, 5, 5),
        (1024, 64 * 7 * 7),
        (10, 1024),
    ]
    assert network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize("name", ["large-batch-fc", "large-batch-convle"])
def test_the_paper_preset_is_the_papers_setting(name):
    config = EXPERIMENTS[name].config("paper")
    assert isinstance(config, LargeBatchConfig)
    training = config.training
    assert (training.batch, training.learning_rate, training.kl_weight, training.prior) == (8192, 3e-3, 0.1, 1.0)
    assert (training.data, training.embedded, training.hidden, training.width, config.seeds) == (
        "mnist",
        False,
        (512, 512),
        1.0,
        5,
    )
    assert ("local_reparam" in config.schemes) == (training.network == "fc")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schemes": ("flipout",)}, "the claims compare shared and flipout"),
        ({"seeds": 1}, "seeds=1: expected at least 2"),
        ({"fractions": (0.0, 1.0)}, "above 0 and up to 1"),
        ({"fractions": ()}, "above 0 and up to 1"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(InvalidArgument, match=message):
        LargeBatchConfig(**changes)
    with pytest.raises(InvalidArgument, match=r"training\.batch=0"):
        BayesTraining(batch=0)
