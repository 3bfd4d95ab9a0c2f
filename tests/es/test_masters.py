"""Updates of models in half precision: no step is lost, and copies of a strategy stay equal."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flipout import errors, es
from flipout.es._masters import Masters, rounded_at_random
from tests.statistics import assert_mean

TARGET = 1.25


def fitness(population: es.Population) -> Tensor:
    """A quadratic of the weights: the columns of W are read by unit vectors."""
    rows = torch.eye(4, dtype=population.model.get_parameter("weight").dtype)
    seen = population(rows.expand(population.size, 4, 4), batched=True)
    return -(seen.double() - TARGET).square().mean((1, 2))


def climb(dtype: torch.dtype, **how: Any) -> es.EvolutionStrategy:
    """Adam's steps of 2e-3 are below half of bf16's spacing at 1, which is 2⁻⁷."""
    model = nn.Linear(4, 3, bias=False, dtype=dtype)
    nn.init.ones_(model.weight)
    settings = {"population": 64, "std": 0.1, "antithetic": True, "scheme": "rank_one", **how}
    return es.EvolutionStrategy(model, fitness, optimizer=lambda p: torch.optim.Adam(p, 2e-3), **settings)


def weight_of(evolution: es.EvolutionStrategy) -> Tensor:
    return evolution.model.get_parameter("weight").detach()


def error(evolution: es.EvolutionStrategy) -> float:
    return float((weight_of(evolution).double() - TARGET).square().mean())


def test_plain_bf16_stalls_on_a_quadratic() -> None:
    evolution = climb(torch.bfloat16, rounding="nearest")
    evolution.run(150)
    assert bool((weight_of(evolution) == 1).all())


@pytest.mark.parametrize("rounding", ["master", "stochastic"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_climbs_a_quadratic(rounding: Any, dtype: torch.dtype) -> None:
    evolution, single = climb(dtype, rounding=rounding), climb(torch.float32)
    evolution.run(150)
    single.run(150)
    assert weight_of(evolution).dtype == dtype
    assert error(single) < 1e-3
    assert error(evolution) < 2e-3


@pytest.mark.parametrize("rounding", ["master", "stochastic", "nearest"])
def test_copies_and_checkpoints_continue_identically(rounding: Any, tmp_path: Any) -> None:
    evolution = climb(torch.bfloat16, rounding=rounding)
    evolution.run(3)
    evolution.save(tmp_path)
    replica, resumed = evolution.replica(), climb(torch.bfloat16, rounding=rounding)
    assert resumed.resume(tmp_path)
    for other in (replica, resumed):
        other.run(8)
    evolution.run(8)
    for other in (replica, resumed):
        assert torch.equal(weight_of(other), weight_of(evolution))
        assert all(map(torch.equal, other.masters.state(), evolution.masters.state()))


def test_a_state_without_masters_starts_from_the_weights() -> None:
    evolution, other = climb(torch.bfloat16), climb(torch.bfloat16)
    evolution.run(2)
    state = evolution.state()
    del state["masters"]
    other.load(state)
    assert torch.equal(other.masters.state()[0], weight_of(evolution).float())


def test_masters_of_another_model_are_refused() -> None:
    evolution = climb(torch.bfloat16)
    for masters in ([torch.ones(2)], [torch.zeros(3, 4)]):
        with pytest.raises(errors.RunError, match="masters, of 'weight'"):
            evolution.load({**evolution.state(), "masters": masters})


def test_weights_that_were_set_by_hand_are_where_the_next_step_starts() -> None:
    evolution = climb(torch.bfloat16)
    evolution.run(1)
    weight_of(evolution).fill_(2.0)
    evolution.run(2)
    assert float((weight_of(evolution).float() - 2).abs().max()) < 0.02


def test_weights_that_were_set_by_hand_are_saved(tmp_path: Any) -> None:
    """Clipping after each update must not make checkpoints and copies that nobody can load."""
    evolution = climb(torch.bfloat16)
    evolution.run(2)
    weight_of(evolution)[0, 0] = 2.0
    evolution.save(tmp_path)
    resumed = climb(torch.bfloat16)
    assert resumed.resume(tmp_path)
    for other in (evolution, resumed, evolution.replica()):
        other.run(4)
        assert torch.equal(weight_of(other), weight_of(evolution))
        assert torch.equal(other.masters.state()[0], evolution.masters.state()[0])


def test_one_weight_that_was_set_by_hand_costs_the_others_no_step() -> None:
    """A weight that is clipped after every update must not round the masters of all others."""
    evolution, free = climb(torch.bfloat16), climb(torch.bfloat16)
    for value in (0.5, 2.0) * 4:
        evolution.step()
        free.step()
        for weight in (weight_of(evolution), weight_of(free), free.masters.stepped[0].data):
            weight[0, 0] = value
    assert not torch.equal(free.masters.state()[0], weight_of(free).float())
    assert torch.equal(evolution.masters.state()[0], free.masters.state()[0])


def test_random_rounding_keeps_the_shapes_that_a_state_is_checked_against() -> None:
    """Between steps there are no masters. The strategy still knows its weights, and loads a state of two dtypes."""

    class Widened(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.float()

    model = nn.Sequential(nn.Linear(3, 4, dtype=torch.bfloat16), Widened(), nn.Linear(4, 1))
    evolution = es.EvolutionStrategy(model, None, population=4, group=4, std=0.1, rounding="stochastic")
    evolution.tell([1.0, 2.0, 3.0, 4.0])
    state = evolution.state()
    assert "of 21 weights" in repr(evolution)
    evolution.tell([4.0, 2.0, 3.0, 1.0])
    evolution.load(state)
    assert all(torch.equal(value, evolution.model.state_dict()[name]) for name, value in state["model"].items())


def test_single_precision_has_no_masters() -> None:
    parameter = nn.Parameter(torch.ones(2))
    masters = Masters([parameter], "master")
    assert masters.stepped == [parameter]
    assert masters.state() == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_random_rounding_is_right_on_average(dtype: torch.dtype) -> None:
    values = torch.tensor([1.001, -1.001, 0.3, 1e-6, 0.0, -2.0, 3e-8, 65000.0])
    draws = torch.stack([rounded_at_random(values, dtype, seed, 5) for seed in range(4000)])
    below, above = draws.float().amin(0), draws.float().amax(0)
    assert all(len(column.unique()) <= 2 for column in draws.float().T)
    assert bool(((below <= values) & (values <= above)).all())
    is_between = above > below
    assert_mean(draws.double()[:, is_between], values.double()[is_between])
    assert torch.equal(draws[0], rounded_at_random(values, dtype, 0, 5))


def test_an_unknown_rounding_is_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"rounding='up': expected 'master', 'stochastic' or 'nearest'"):
        climb(torch.bfloat16, rounding="up")
