"""The members are the same in every chunking, whoever evaluates them."""

from typing import Any

import pytest
import torch
from torch import Tensor

import flipout
from flipout import errors, es
from tests.es.toys import full, regression, strategy

PARTS = [es.Local(members) for members in (1, 3, 4, 7, 24, 1000)] + [es.Local(memory=m) for m in (1, 500, 2**20)]


@pytest.mark.parametrize("antithetic", [False, True], ids=["plain", "antithetic"])
@pytest.mark.parametrize("scheme", ["flipout", "independent", flipout.LowRank(2), "rank_one"], ids=str)
def test_every_chunking_gives_the_same_weights(scheme: Any, antithetic: bool) -> None:
    """The fitness agrees to rounding; its ranks, and so the update, agree bit for bit."""
    whole, *others = (strategy(scheme=scheme, antithetic=antithetic, fleet=fleet) for fleet in reversed(PARTS))
    expected = whole.fleet.evaluate(whole)
    whole.run(3)
    for evolution in others:
        torch.testing.assert_close(evolution.fleet.evaluate(evolution), expected, rtol=1e-10, atol=1e-12)
        evolution.run(3)
        for parameter, expected_parameter in zip(evolution.model.parameters(), whole.model.parameters(), strict=True):
            assert torch.equal(parameter, expected_parameter)


@pytest.mark.parametrize(
    ("how", "fleet", "most"),
    [
        ({}, es.Local(members=5), 5),
        ({}, es.Local(memory=1000), 5 * 4),  # the largest Parameter has 24 · 8 bytes
        ({"antithetic": True}, es.Local(memory=1000), 5 * 2),
        ({"scheme": "independent"}, es.Local(memory=1000), 5),
        ({}, es.Local(memory=1), 4),
    ],
)
def test_members_at_once(how: dict[str, Any], fleet: es.Local, most: int) -> None:
    evolution = strategy(fleet=fleet, **how)
    sizes: list[int] = []

    def fitness(population: es.Population) -> Tensor:
        sizes.append(population.size)
        return regression(population)

    evolution.fitness = fitness
    evolution.step()
    assert fleet.most(evolution) == most
    assert max(sizes) <= most
    assert sum(sizes) == 24


@pytest.mark.parametrize("how", [{"members": 0}, {"members": 1.5}, {"memory": 0}])
def test_bad_budgets(how: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument, match="expected a whole number ≥ 1"):
        es.Local(**how)


class Copies(es.Fleet):
    """Two copies of the strategy that receive only fitness numbers. One member gets lost."""

    def __init__(self) -> None:
        self.copies: list[es.EvolutionStrategy] = []

    def evaluate(self, strategy: es.EvolutionStrategy) -> Tensor:
        if not self.copies:
            self.copies = [strategy.replica() for _ in range(2)]
        parts = range(len(strategy.ask(4)))
        fitness = torch.cat([copy.evaluate(copy.ask(4)[i]) for i in parts for copy in [self.copies[i % 2]]])
        fitness[5] = torch.nan
        return fitness

    def follow(self, strategy: es.EvolutionStrategy, fitness: Tensor) -> None:
        for copy in self.copies:
            copy.tell(fitness)


def test_a_fleet_of_copies_follows_by_fitness_alone() -> None:
    fleet = Copies()
    evolution = full()
    evolution.fleet = fleet
    assert [told.missing for told in evolution.run(4)] == [1] * 4
    for copy in fleet.copies:
        assert copy.generation == evolution.generation
        for parameter, original in zip(copy.model.parameters(), evolution.model.parameters(), strict=True):
            assert parameter is not original
            assert torch.equal(parameter, original)
