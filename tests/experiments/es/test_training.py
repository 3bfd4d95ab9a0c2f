"""A task gives all methods the same start and batches, and its fitness is that of each network."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import cross_entropy

import flipout
from flipout.es._seeds import seed_of
from flipout.experiments.es.training import EsTrainer, Task
from flipout.experiments.training.supervised import isolated_randomness, prepare
from tests.experiments.es.toys import SMALL
from tests.oracles import weights_of_each


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
        first, second = (EsTrainer(Task(SMALL, prepared, 3, run), name, 40, 0) for name in ("FlipES", method))
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
