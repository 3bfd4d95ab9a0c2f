"""A strategy runs, repeats and records its generations, and refuses what it cannot use."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import errors, es
from tests.es.toys import Still, X, network, regression, strategy

SCHEMES = ("flipout", "independent", flipout.LowRank(2), "rank_one")


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_it_learns(scheme: Any) -> None:
    evolution = strategy(scheme=scheme, population=120, group=20)
    history = evolution.run(40)
    assert history[-1].fitness_mean > 0.2 * history[0].fitness_mean
    plain = flipout.freeze(evolution.model)
    assert float((plain(X) - X[:, :3].sin()).square().mean().detach()) < 0.1


def test_ask_and_tell_are_step() -> None:
    stepped, other = strategy(antithetic=True), strategy(None, antithetic=True)
    for _ in range(3):
        told = stepped.step()
        again = other.tell(torch.cat([regression(part) for part in other.ask(7)]))
        assert (told.generation, told.fitness_max) == (again.generation, again.fitness_max)
    assert all(torch.equal(a, b) for a, b in zip(stepped.model.parameters(), other.model.parameters(), strict=True))
    assert [record.generation for record in stepped.history] == [0, 1, 2]
    assert stepped.history[0].members_per_second > 0
    assert "generation 0: fitness" in str(stepped.history[0])


def test_generations_count_from_the_start() -> None:
    evolution, seen = strategy(), []
    assert len(evolution.run(2, progress=seen.append)) == 2
    assert len(evolution.run(3)) == 3
    assert len(evolution.run(3)) == 3
    assert seen == evolution.history[:2]


def test_the_same_seed_goes_the_same_way() -> None:
    same, again, other = strategy(seed=1), strategy(seed=1), strategy(seed=2)
    states = []
    for evolution in (same, again, other):
        torch.manual_seed(len(states))  # torch's own generator has no part in it
        evolution.run(3)
        states.append(evolution.model.get_parameter("0.weight"))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_torchs_generator_is_not_touched() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    evolution = strategy(model=network())
    torch.set_rng_state(before)
    evolution.step()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("antithetic", [False, True], ids=["plain", "antithetic"])
def test_members_without_a_fitness_are_left_out_and_counted(antithetic: bool) -> None:
    """A pair counts only if both members do, and the sum is divided by the members that count."""
    fitness = torch.randn(24, dtype=torch.float64)
    lost = fitness.clone()
    lost[3], lost[7], lost[20] = math.nan, math.inf, -math.inf
    evolution, expected = (strategy(None, antithetic=antithetic, optimizer=Still, shaping="raw") for _ in range(2))
    told = evolution.tell(lost)
    assert (told.missing, told.members) == (3, 24)
    assert math.isfinite(told.fitness_mean)
    assert math.isfinite(told.fitness_max)
    left = [3, 7, 20, *((15, 19, 8) if antithetic else ())]
    fitness[left] = 0
    expected.tell(fitness * 24 / (24 - len(left)))
    torch.testing.assert_close(evolution.optimizer.seen[0], expected.optimizer.seen[0])  # pyright: ignore


def test_no_member_has_a_fitness() -> None:
    evolution = strategy(lambda population: torch.full((population.size,), math.nan))
    before = [parameter.clone() for parameter in evolution.model.parameters()]
    with pytest.raises(errors.NonFinite, match="Generation 0: no member has a finite fitness"):
        evolution.step()
    assert all(torch.equal(a, b) for a, b in zip(evolution.model.parameters(), before, strict=True))


@pytest.mark.parametrize("shaping", ["centered_rank", "z_score"])
def test_all_equal_is_no_direction(shaping: str) -> None:
    evolution = strategy(lambda population: [7.0] * population.size, shaping=shaping, optimizer=torch.optim.SGD)
    with pytest.warns(RuntimeWarning, match="no direction"):
        assert evolution.step().update_norm == 0
    decayed = strategy(lambda p: [7.0] * p.size, weight_decay=0.1, optimizer=lambda p: torch.optim.SGD(p, 1.0))
    weight = decayed.model.get_parameter("0.weight")
    before = weight.clone()
    with pytest.warns(RuntimeWarning, match="no direction"):
        decayed.step()
    torch.testing.assert_close(weight, 0.9 * before)


def test_schedules_of_noise_and_learning_rate() -> None:
    evolution = strategy(
        std=lambda generation: 0.1 / (generation + 1),
        schedule=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
    )
    seen = []
    for _ in range(3):
        (population,) = evolution.ask()
        noise = population(X[:1].expand(24, 4)).std(0).mean()
        seen.append((evolution.std, evolution.optimizer.param_groups[0]["lr"], float(noise)))
        evolution.step()
    stds, rates, noise = zip(*seen, strict=True)
    assert stds == pytest.approx((0.1, 0.05, 0.1 / 3))
    assert rates == pytest.approx((0.05, 0.025, 0.0125))
    assert noise[0] > 1.5 * noise[1] > 1.5 * noise[2]


def test_a_fitness_without_a_gradient() -> None:
    """The fitness is an accuracy, in whole numbers."""
    target = X.argmax(1) % 3

    def fitness(population: es.Population) -> list[int]:
        logits = population(X.expand(population.size, *X.shape), batched=True)
        return (logits.argmax(2) == target).sum(1).tolist()

    history = strategy(fitness, population=80, group=8).run(15)
    assert history[-1].fitness_mean > history[0].fitness_mean


def momentum(**how: Any) -> es.EvolutionStrategy:
    return strategy(optimizer=lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9), **how)


def weights(evolution: es.EvolutionStrategy) -> Tensor:
    return nn.utils.parameters_to_vector(evolution.model.parameters()).detach()


def test_a_replica_has_its_own_momentum() -> None:
    alone, evolution = momentum(), momentum()
    for running in (alone, evolution):
        running.run(2)
    other = evolution.replica()
    fitness = torch.linspace(-1, 1, evolution.settings.population).square()
    for running in (other, evolution, alone):
        running.tell(fitness)
    assert torch.equal(weights(evolution), weights(alone))
    assert torch.equal(weights(other), weights(alone))


def test_a_state_is_a_place_to_go_back_to() -> None:
    evolution = momentum()
    evolution.run(2)
    state, before = evolution.state(), weights(evolution)
    evolution.run(4)
    evolution.load(state)
    assert torch.equal(weights(evolution), before)
    alone = momentum()
    for running in (evolution, alone):
        running.run(4)
    assert torch.equal(weights(evolution), weights(alone))


def test_an_update_that_overflows_is_not_made() -> None:
    evolution = strategy(shaping="raw")
    before = weights(evolution)
    with (
        pytest.warns(RuntimeWarning, match="no direction"),
        pytest.raises(errors.NonFinite, match="weights are unchanged"),
    ):
        evolution.tell(
            torch.full((evolution.settings.population,), 1e300, dtype=torch.float64) * torch.tensor(1e8).double()
        )
    assert torch.equal(weights(evolution), before)


@pytest.mark.parametrize("most", [0, 2.5, True])
def test_sizes_of_chunks_are_whole_numbers(most: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="most="):
        strategy().ask(most)


def test_it_is_shown_in_a_line() -> None:
    evolution = strategy(lambda population: torch.arange(population.size) / 3)
    said = (
        "EvolutionStrategy(Sequential of 51 weights, population=24, group=4, std=0.1, scheme='flipout', generation=0)"
    )
    assert repr(evolution) == said
    record = evolution.step()
    assert repr(evolution).endswith("generation=1)")
    assert repr(record).startswith("Generation(generation=0, fitness_mean=3.833, fitness_max=7.667, update_norm=")
    assert max(map(len, repr(record).split("="))) < 25
    assert repr(evolution.ask(10)[1]) == "Population(members 8 to 15 of generation 1)"
    assert repr(evolution.settings.shaping).startswith("<function centered_rank")


@pytest.mark.parametrize("fleet", [es.Local(), es.Local(members=5)], ids=str)
def test_a_fleet_is_shown_as_it_was_made(fleet: es.Local) -> None:
    assert eval(repr(fleet), {"Local": es.Local}).__dict__ == fleet.__dict__


def test_no_fitness() -> None:
    with pytest.raises(errors.InvalidArgument, match="fitness=None"):
        strategy(None).step()


def test_bad_runs() -> None:
    wrong: list[dict[str, Any]] = [{"generations": -1}, {"generations": 1, "every": 0}, {"generations": 1.5}]
    for how in wrong:
        with pytest.raises(errors.InvalidArgument, match="expected a whole number"):
            strategy().run(**how)


def test_progress_is_printed_or_handed_on(capsys) -> None:
    records = []
    strategy().run(3, progress=records.append)
    assert [record.generation for record in records] == [0, 1, 2]
    strategy().run(3)
    strategy().run(3, progress=False)
    assert capsys.readouterr().out == ""
    strategy().run(3, progress=True)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("generation 2: fitness ")
    assert last.endswith(", 0 s left")
