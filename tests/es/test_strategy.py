"""The update: the explicit sum over members, the analytic gradient in expectation, the variance that theory gives."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import errors, es
from flipout.nn.held_weights import weighted_sums
from tests import draws
from tests.es.toys import Still, X, network, regression, strategy
from tests.networks import TiedLM, convnet, encoder
from tests.oracles import weights_of_each
from tests.statistics import (
    assert_mean,
    assert_mean_below,
    assert_same_distribution,
    assert_variance,
    squared_deviations,
)

SCHEMES = ("flipout", "independent", flipout.LowRank(2))
GENERATOR = torch.Generator().manual_seed(3)


def explicit(made: es.EvolutionStrategy, inputs: Tensor, fitness: Tensor) -> dict[str, Tensor]:
    """1 / (N σ²) Σ_n F_n ΔW_n, with every ΔW_n at hand."""
    totals: dict[str, Tensor] = {}
    fitness_of = iter(fitness.split([part.size for part in made.ask(5)]))
    for part in made.ask(5):
        own, options = next(fitness_of), {"first": part.first, "group": part.group, "antithetic": part.antithetic}
        with flipout.hold(made.model, es.population.seed_of(part.seed, part.generation), **options), torch.no_grad():
            made.model(inputs[: part.size])
            for name, weights in weights_of_each(made.model).items():
                delta = weights - made.model.get_parameter(name)
                totals[name] = totals.get(name, 0) + torch.tensordot(own, delta, 1)
    return {name: total / (len(fitness) * made.std**2) for name, total in totals.items()}


MODELS: dict[str, tuple[Any, Any]] = {
    "mlp": (network, X[0].expand(24, 4)),
    "convolutions": (lambda: convnet().double().eval(), torch.randn(24, 2, 6, 6, dtype=torch.float64)),
    "attention": (lambda: encoder(layers=1).double(), torch.randn(24, 3, 8, dtype=torch.float64)),
    "tied": (lambda: TiedLM().double(), torch.randint(7, (24, 2))),
}


@pytest.mark.parametrize("antithetic", [False, True], ids=["plain", "antithetic"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_the_update_is_the_sum_over_members(name: str, scheme: Any, antithetic: bool) -> None:
    make, inputs = MODELS[name]
    fitness, model = torch.randn(24, dtype=torch.float64), make()
    how = {"scheme": scheme, "antithetic": antithetic, "shaping": "raw", "optimizer": lambda p: torch.optim.SGD(p, 0.5)}
    made = strategy(None, model, **how)
    expected = explicit(made, inputs, fitness)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    told = made.tell(fitness)
    changes = {key: value - before[key] for key, value in model.state_dict().items() if key in expected}
    assert changes.keys() == expected.keys()
    for key, change in changes.items():
        torch.testing.assert_close(change, 0.5 * expected[key], rtol=1e-9, atol=1e-12)
    norm = math.hypot(
        *(float(model.get_parameter(n).detach().sub(before[n]).norm()) for n, _ in model.named_parameters())
    )
    assert told.update_norm == pytest.approx(norm)
    assert (told.fitness_mean, told.fitness_max) == pytest.approx((float(fitness.mean()), float(fitness.max())))


# y = W x + b at W̄ = 0; C = c xᵀ for the weight and c for the bias are the gradient of the linear fitness c · y.
A, C_OUT = torch.randn(3, generator=GENERATOR).double(), torch.randn(2, generator=GENERATOR).double()
GRADIENT = torch.cat((torch.outer(C_OUT, A).flatten(), C_OUT))
TARGET = torch.tensor([0.7, -1.1], dtype=torch.float64)
N, STD = 12, 0.3


def linear(y: Tensor) -> Tensor:
    return y @ C_OUT


def quadratic(y: Tensor) -> Tensor:
    return -0.5 * (y - TARGET).square().sum(1)


def zeros() -> nn.Linear:
    model = nn.Linear(3, 2).double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def estimates(
    fitness: Any, generations: int, scheme: Any = "flipout", group: int = 6, antithetic: bool = False
) -> Tensor:
    """(generations, entries): 1 / (N σ²) Σ_n F_n ΔW_n, for many seeds at once."""
    model = flipout.perturb(zeros(), flipout.Gaussian(STD), scheme=scheme, where="*")
    images = (False, True) if antithetic else (False,)

    def one(seed: Tensor) -> Tensor:
        total: Any = 0
        for image in images:
            with flipout.hold(model, seed=seed, group=group // len(images), antithetic=image):
                told = fitness(model(A.expand(N // len(images), 3)))
                sums = {id(parameter): made for parameter, made in weighted_sums(model, told)}
                total = total + torch.cat([sums[id(parameter)].flatten() for parameter in model.parameters()])
        return total / (N * STD**2)

    return torch.func.vmap(one, chunk_size=1000)(draws.seeds(generations)).detach()


def test_the_estimates_of_a_strategy() -> None:
    """Each generation an estimate of its own; what follows makes many at once."""
    how = {"population": N, "group": 6, "std": STD, "shaping": "raw", "optimizer": Still}
    made = es.EvolutionStrategy(zeros(), lambda p: quadratic(p(A.expand(p.size, 3))), **how)
    made.run(1000)
    assert isinstance(made.optimizer, Still)
    assert_same_distribution(-torch.stack(made.optimizer.seen), estimates(quadratic, 1000))


@pytest.mark.parametrize("antithetic", [False, True], ids=["plain", "antithetic"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_on_a_quadratic_the_mean_is_the_analytic_gradient(scheme: Any, antithetic: bool) -> None:
    """Smoothing a quadratic adds a constant, so its gradient is that at the mean, in each of the 8 entries."""
    gradient = torch.cat((torch.outer(TARGET, A).flatten(), TARGET))
    seen = estimates(quadratic, 20_000, scheme, antithetic=antithetic)
    assert_mean(seen, gradient)
    with pytest.raises(AssertionError, match="mean"):
        assert_mean(seen, 1.1 * gradient)


@pytest.mark.parametrize("std", [0.1, 0.3])
@pytest.mark.parametrize("scheme", [*SCHEMES, *map(flipout.LowRank, (1, 4, 16))], ids=str)
def test_where_the_fitness_bends_the_mean_of_low_rank_noise_is_no_gradient(scheme: Any, std: float) -> None:
    """Of sin(w · x), with w̄ = 0, sixteen inputs of size 1 and t = 16 σ², the smoothed fitness has the gradient e^{−t/2}
    in each entry, and so has the mean of estimates from Gaussian noise. That of noise of rank r is
    (1 + t/r)^{−(r/2 + 1)}: at σ = 0.3 it is 0.54 of the gradient for rank 1, 0.82 for rank 4, 0.95 for rank 16."""
    layer, x = nn.Linear(16, 1, bias=False).double(), torch.ones(12, 16, dtype=torch.float64)
    nn.init.zeros_(layer.weight)
    model = flipout.perturb(layer, flipout.Gaussian(std), scheme=scheme)

    def one(seed: Tensor) -> Tensor:
        with flipout.hold(model, seed=seed):
            ((_, made),) = weighted_sums(model, model(x).sin().squeeze(1))
        return made.flatten() / (12 * std**2)

    seen = torch.func.vmap(one, chunk_size=1000)(draws.seeds(20_000)).detach().mean(1)
    t, rank = 16 * std**2, getattr(scheme, "rank", None)
    gradient = math.exp(-t / 2)
    expected = gradient if rank is None else (1 + t / rank) ** -(rank / 2 + 1)
    assert_mean(seen, expected)
    if rank == 1 and std == 0.3:
        assert float(seen.mean()) / gradient == pytest.approx(0.54, abs=0.02)


@pytest.mark.parametrize("group", [1, 4, 12])
def test_the_variance_of_flipout_is_that_of_independent_noise_and_a_little(group: int) -> None:
    """On a linear fitness with gradient C, for N members in groups of G:

    (‖C‖² + C_ij²) / N with noise of their own, and (G − 1) / N · 2 C_ij² more under flipout: the theorem's α and γ.
    """
    alpha, gamma = GRADIENT.square().sum() + GRADIENT.square(), 2 * GRADIENT.square()
    assert_variance(estimates(linear, 20_000, group=group), (alpha + (group - 1) * gamma) / N)


def test_the_variance_of_independent_noise() -> None:
    """IdealES: as under flipout with groups of one."""
    assert_variance(estimates(linear, 20_000, "independent"), (GRADIENT.square().sum() + GRADIENT.square()) / N)


def test_mirror_images_take_away_what_is_even() -> None:
    """The offset of the fitness, and its curvature: an even fitness has an estimate of exactly 0."""
    assert float(estimates(lambda y: y.square().sum(1), 100, antithetic=True).abs().max()) < 1e-12
    seen = (estimates(lambda y: 3 + linear(y), 1000, antithetic=antithetic) for antithetic in (True, False))
    assert_mean_below(*map(squared_deviations, seen))


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_it_learns(scheme: Any) -> None:
    made = strategy(scheme=scheme, population=120, group=20)
    history = made.run(40)
    assert history[-1].fitness_mean > 0.2 * history[0].fitness_mean
    plain = flipout.freeze(made.model)
    assert float((plain(X) - X[:, :3].sin()).square().mean().detach()) < 0.1


def test_ask_and_tell_are_step() -> None:
    one, other = strategy(antithetic=True), strategy(None, antithetic=True)
    for _ in range(3):
        told = one.step()
        again = other.tell(torch.cat([regression(part) for part in other.ask(7)]))
        assert (told.generation, told.fitness_max) == (again.generation, again.fitness_max)
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True))
    assert [made.generation for made in one.history] == [0, 1, 2]
    assert one.history[0].members_per_second > 0
    assert "generation 0: fitness" in str(one.history[0])


def test_generations_count_from_the_start() -> None:
    made, seen = strategy(), []
    assert len(made.run(2, progress=seen.append)) == 2
    assert len(made.run(3)) == 3
    assert len(made.run(3)) == 3
    assert seen == made.history[:2]


def test_the_same_seed_goes_the_same_way() -> None:
    same, again, other = strategy(seed=1), strategy(seed=1), strategy(seed=2)
    states = []
    for made in (same, again, other):
        torch.manual_seed(len(states))  # torch's own generator has no part in it
        made.run(3)
        states.append(made.model.get_parameter("0.weight"))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_torchs_generator_is_not_touched() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    made = strategy(model=network())
    torch.set_rng_state(before)
    made.step()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("antithetic", [False, True], ids=["plain", "antithetic"])
def test_members_without_a_fitness_are_left_out_and_counted(antithetic: bool) -> None:
    """A pair counts only as a whole; the others are renormalised."""
    fitness = torch.randn(24, dtype=torch.float64)
    lost = fitness.clone()
    lost[3], lost[7], lost[20] = math.nan, math.inf, -math.inf
    made, expected = (strategy(None, antithetic=antithetic, optimizer=Still, shaping="raw") for _ in range(2))
    told = made.tell(lost)
    assert (told.missing, told.members) == (3, 24)
    assert math.isfinite(told.fitness_mean)
    assert math.isfinite(told.fitness_max)
    left = [3, 7, 20, *((15, 19, 8) if antithetic else ())]
    fitness[left] = 0
    expected.tell(fitness * 24 / (24 - len(left)))
    torch.testing.assert_close(made.optimizer.seen[0], expected.optimizer.seen[0])  # pyright: ignore


def test_no_member_has_a_fitness() -> None:
    made = strategy(lambda population: torch.full((population.size,), math.nan))
    before = [parameter.clone() for parameter in made.model.parameters()]
    with pytest.raises(errors.NonFinite, match="Generation 0: no member has a finite fitness"):
        made.step()
    assert all(torch.equal(a, b) for a, b in zip(made.model.parameters(), before, strict=True))


@pytest.mark.parametrize("shaping", ["centered_rank", "z_score"])
def test_all_equal_is_no_direction(shaping: str) -> None:
    made = strategy(lambda population: [7.0] * population.size, shaping=shaping, optimizer=torch.optim.SGD)
    assert made.step().update_norm == 0
    decayed = strategy(lambda p: [7.0] * p.size, weight_decay=0.1, optimizer=lambda p: torch.optim.SGD(p, 1.0))
    weight = decayed.model.get_parameter("0.weight")
    before = weight.clone()
    decayed.step()
    torch.testing.assert_close(weight, 0.9 * before)


def test_schedules_of_noise_and_learning_rate() -> None:
    made = strategy(
        std=lambda generation: 0.1 / (generation + 1),
        schedule=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
    )
    seen = []
    for _ in range(3):
        (population,) = made.ask()
        noise = population(X[:1].expand(24, 4)).std(0).mean()
        seen.append((made.std, made.optimizer.param_groups[0]["lr"], float(noise)))
        made.step()
    stds, rates, noise = zip(*seen, strict=True)
    assert stds == pytest.approx((0.1, 0.05, 0.1 / 3))
    assert rates == pytest.approx((0.05, 0.025, 0.0125))
    assert noise[0] > 1.5 * noise[1] > 1.5 * noise[2]


def test_a_fitness_without_a_gradient() -> None:
    """Accuracy, in whole numbers."""
    target = X.argmax(1) % 3

    def fitness(population: es.Population) -> list[int]:
        made = population(X.expand(population.size, *X.shape), batched=True)
        return (made.argmax(2) == target).sum(1).tolist()

    history = strategy(fitness, population=80, group=8).run(15)
    assert history[-1].fitness_mean > history[0].fitness_mean


def momentum(**how: Any) -> es.EvolutionStrategy:
    return strategy(optimizer=lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9), **how)


def weights(made: es.EvolutionStrategy) -> Tensor:
    return nn.utils.parameters_to_vector(made.model.parameters()).detach()


def test_a_replica_has_its_own_momentum() -> None:
    alone, made = momentum(), momentum()
    for one in (alone, made):
        one.run(2)
    other = made.replica()
    fitness = torch.linspace(-1, 1, made.settings.population).square()
    for one in (other, made, alone):
        one.tell(fitness)
    assert torch.equal(weights(made), weights(alone))
    assert torch.equal(weights(other), weights(alone))


def test_a_state_is_a_place_to_go_back_to() -> None:
    made = momentum()
    made.run(2)
    state, before = made.state(), weights(made)
    made.run(4)
    made.load(state)
    assert torch.equal(weights(made), before)
    alone = momentum()
    for one in (made, alone):
        one.run(4)
    assert torch.equal(weights(made), weights(alone))


def test_an_update_that_overflows_is_not_made() -> None:
    made = strategy(shaping="raw")
    before = weights(made)
    with pytest.raises(errors.NonFinite, match="weights are as they were"):
        made.tell(torch.full((made.settings.population,), 1e300, dtype=torch.float64) * torch.tensor(1e8).double())
    assert torch.equal(weights(made), before)


def test_large_numbers_have_a_z_score() -> None:
    fitness = torch.randn(6, dtype=torch.float64)
    torch.testing.assert_close(es.shaping.z_score(fitness * 1e200), es.shaping.z_score(fitness))


@pytest.mark.parametrize("most", [0, 2.5, True])
def test_parts_are_whole(most: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="most="):
        strategy().ask(most)
