"""Evolution strategies against independent noise and backpropagation: training, and what is claimed."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import flipout
from flipout.errors import InvalidArgument
from flipout.es._seeds import seed_of
from flipout.experiments.es import claims
from flipout.experiments.es.curves import EsCurve, EsCurves, trained
from flipout.experiments.es.discrete import BINARY, _gradient, _no_gradient
from flipout.experiments.es.estimates import NOISY, drawn
from flipout.experiments.es.figures import by_method
from flipout.experiments.es.presets import ES_DISCRETE
from flipout.experiments.es.supervised import EsConfig
from flipout.experiments.es.training import DIGITS, EsTraining, Task, Trainer
from flipout.experiments.running.results import MUST_HOLD, REPORTED
from flipout.experiments.training.networks import Binary
from flipout.experiments.training.supervised import isolated_randomness, prepare
from tests.oracles import weights_of_each

SMALL = replace(DIGITS, hidden=(8,), batch=16, updates=5)


def curve(name: str, seed: int, slowness: float, end: float = 0.0) -> EsCurve:
    """A loss that falls as 1 / (1 + t / slowness)."""
    at = [0, 1, 2, 4, 8, 16, 32, 64, 128]
    falling = [end + 1 / (1 + t / slowness) for t in at]
    return EsCurve(name, seed, at, falling, falling, falling, 0.1)


def curves(end: float = 0.0, **slowness: float) -> EsCurves:
    return EsCurves(
        curve(name, seed, factor * 1.1**seed, end if name == "FlipES" else 0.0)
        for seed in range(3)
        for name, factor in slowness.items()
    )


@pytest.mark.parametrize("network", ["fc", "convle"])
@pytest.mark.parametrize("fitness", ["likelihood", "accuracy"])
def test_fitness_is_that_of_each_network_on_the_same_pictures(run, network, fitness):
    config = replace(SMALL, network=network, width=1 / 16, fitness=fitness)
    with isolated_randomness(run):
        task = Task(config, prepare(config, run), 3, run)
        plain = Task(config, prepare(config, run), 3, run).model
    strategy = task.strategy("FlipES", 80, 5, optimizer=lambda parameters: torch.optim.SGD(parameters, 1.0))
    strategy.step()
    (population,) = strategy.ask()[1:]  # mirror images of the second generation
    x, y = task.x[task.batches[1]], task.y[task.batches[1]]
    with flipout.hold(task.model, seed_of(5, 1), group=20, antithetic=True):
        task.model(x[:1].expand(40, *x.shape[1:]))  # fixes the number of members
        weights = weights_of_each(task.model)
    for member in (0, 25):
        member_weights = {name: weight[member] for name, weight in weights.items()}
        logits: Any = functional_call(plain, member_weights, (x,))
        right = (logits.argmax(1) == y).float().mean()
        expected = right if fitness == "accuracy" else -cross_entropy(logits, y)
        torch.testing.assert_close(task.fitness(population)[member], expected)


@pytest.mark.parametrize("method", ["FlipES", "IdealES", "backprop"])
def test_networks_of_one_seed_begin_alike_and_see_the_same_batches(run, method):
    prepared = prepare(SMALL, run)
    before = torch.get_rng_state()
    with isolated_randomness(run):
        first, second = (Trainer(Task(SMALL, prepared, 3, run), name, 40, 0) for name in ("FlipES", method))
        other = Task(SMALL, prepared, 4, run)
    assert torch.equal(torch.get_rng_state(), before)
    starts = [[p.clone() for p in model.parameters()] for model in (first.model, second.model, other.model)]
    assert all(torch.equal(a, b) for a, b in zip(starts[0], starts[1], strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(starts[0], starts[2], strict=True))
    assert torch.equal(first.task.batches, second.task.batches)
    assert not torch.equal(first.task.batches, other.batches)
    second.train(2)
    assert not any(torch.equal(a, b) for a, b in zip(starts[1], second.model.parameters(), strict=True))
    assert second.seconds > 0


@pytest.mark.parametrize("method", ["FlipES", "backprop"])
def test_training_lowers_loss_and_error(run, method):
    config = replace(SMALL, hidden=(16,), batch=64, updates=40)
    prepared = prepare(config, run)
    run._piece = "here"
    learned = EsCurve(**trained(config, prepared, method, 200, 0, 500, run))
    assert learned.loss[-1] < 0.6 * learned.loss[0]
    assert learned.test_error[-1] < 0.7 * learned.test_error[0]
    assert (learned.iterations[0], learned.iterations[-1]) == (0, 40)
    assert learned.name == ("backprop" if method == "backprop" else "FlipES 200")


def test_estimates_are_of_one_gradient_and_a_biased_one_is_found_out(run):
    prepared = prepare(SMALL, run)
    found = {m: drawn(SMALL, prepared, m, 400, 40, run) for m in ("FlipES", "IdealES", NOISY)}
    check = claims.same_gradient(found)
    assert (check.kind, check.holds) == (MUST_HOLD, True)
    name = "fc2.weight"
    assert all(claims.Mean.of(estimates["along"][name]).value > 0 for estimates in found.values())
    off = {**found["FlipES"]["along"], name: [1.5 * value for value in found["FlipES"]["along"][name]]}
    assert not claims.same_gradient({**found, "FlipES": {**found["FlipES"], "along": off}}).holds


def test_flipout_never_varies_less():
    generator = torch.Generator().manual_seed(0)

    def scatter(size: float) -> dict[str, dict[str, list[float]]]:
        return {"along": {}, "scatter": {"w": (size * (1 + 0.1 * torch.randn(60, generator=generator))).tolist()}}

    def holds(spread: float) -> list[bool]:
        checks, numbers = claims.variances({"FlipES": scatter(spread), "IdealES": scatter(1.0)}, 20, 1000)
        assert numbers["variance of FlipES / IdealES, were fitness linear"] == 1 + 2 * 19 / 1001
        assert [check.kind for check in checks] == [MUST_HOLD, REPORTED]
        return [check.holds for check in checks]

    assert holds(1.0) == [True, True]
    assert holds(1.5) == [True, False]
    assert holds(0.8) == [False, True]


def test_no_loss_is_within_the_spread_of_the_seeds():
    def holds(curves_seen: EsCurves) -> list[bool]:
        return [check.holds for check in claims.no_loss(curves_seen, "FlipES", "IdealES")]

    assert all(holds(curves(FlipES=10.0, IdealES=10.0)))
    assert not any(holds(curves(FlipES=30.0, IdealES=10.0)))
    assert holds(curves(FlipES=9.0, IdealES=10.0))[-1]


def test_updates_are_compared_where_evolution_strategies_end():
    check = claims.comparable(curves(FlipES=30.0, backprop=10.0), "FlipES")
    assert (check.kind, check.holds) == (REPORTED, False)
    assert check.value == pytest.approx(3.0, rel=0.1)
    assert claims.comparable(curves(FlipES=15.0, backprop=10.0), "FlipES").holds
    slow = claims.comparable(curves(backprop=100.0, FlipES=10.0), "FlipES")
    assert slow.value == pytest.approx(0.1, rel=0.2)  # at the level of the slower one
    assert slow.holds
    lower = claims.lower(curves(FlipES=30.0, backprop=10.0, end=0.1), "backprop", "FlipES")
    assert lower.holds
    assert lower.value is not None
    assert lower.value < -10


def test_colours_are_of_methods_and_shades_of_samples():
    colours = by_method(["FlipES 1,600", "FlipES 5,000", "IdealES 1,600", "backprop"])
    assert len(set(colours.values())) == 4


def test_binary_units_have_no_gradient(run):
    x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    assert Binary()(x).tolist() == [0, 0, 1]
    assert not Binary()(x).requires_grad
    config: Any = ES_DISCRETE.presets["smoke"]
    prepared = prepare(config.training, run)
    assert _no_gradient(_gradient(config.trainings[BINARY], prepared, run)).holds
    assert not _no_gradient(_gradient(config.training, prepared, run)).holds
    units = [type(module).__name__ for module in Task(config.trainings[BINARY], prepared, 0, run).model]  # pyright: ignore
    assert units == ["Linear", "Binary", "Linear"]


@pytest.mark.parametrize("fitness", ["likelihood", "accuracy"])
def test_estimates_where_there_is_no_gradient(run, fitness):
    config = replace(SMALL, units="binary", fitness=fitness, std=0.2)
    prepared = prepare(config, run)
    found = {method: drawn(config, prepared, method, 400, 30, run) for method in ("FlipES", "IdealES")}
    assert claims.same_gradient(found).holds
    z = [claims.Mean.of(estimates["along"]["fc1.weight"]) for estimates in found.values()]
    assert all(mean.value > 3 * mean.error for mean in z)  # what backpropagation cannot see


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"seeds": 1}, "seeds=1"), ({"samples": (50,)}, "multiples of group=40"), ({"draws": 2}, "10")],
)
def test_bad_settings(settings: dict[str, Any], said: str):
    with pytest.raises(InvalidArgument, match=said):
        EsConfig(**settings)
    with pytest.raises(InvalidArgument, match="updates=0"):
        EsTraining(updates=0)


def test_no_seed_reaches_what_is_not_there():
    never: Tensor = torch.tensor(curve("FlipES", 0, 10.0).reached("loss", 0.0))
    assert float(never) == math.inf
