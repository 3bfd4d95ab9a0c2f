"""The update equals the explicit sum over members; its mean and variance are those of theory."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import es
from flipout.es._seeds import seed_of
from flipout.nn.held_weights import weighted_sums
from tests import many_draws
from tests.es.toys import Still, X, network, strategy
from tests.networks import TiedLM, convnet, encoder
from tests.oracles import weights_of_each
from tests.statistics import (
    assert_mean,
    assert_mean_below,
    assert_same_distribution,
    assert_variance,
    squared_deviations,
)

SCHEMES = ("flipout", "independent", flipout.LowRank(2), "rank_one")
GENERATOR = torch.Generator().manual_seed(3)


def explicit(evolution: es.EvolutionStrategy, inputs: Tensor, fitness: Tensor) -> dict[str, Tensor]:
    """Return 1 / (N σ²) Σ_n F_n ΔW_n, computed from every ΔW_n."""
    totals: dict[str, Tensor] = {}
    fitness_of = iter(fitness.split([part.size for part in evolution.ask(5)]))
    for part in evolution.ask(5):
        part_fitness, options = (
            next(fitness_of),
            {"first": part.first, "group": part.group, "antithetic": part.antithetic},
        )
        with flipout.hold(evolution.model, seed_of(part.seed, part.generation), **options), torch.no_grad():
            evolution.model(inputs[: part.size])
            for name, weights in weights_of_each(evolution.model).items():
                delta = weights - evolution.model.get_parameter(name)
                totals[name] = totals.get(name, 0) + torch.tensordot(part_fitness, delta, 1)
    return {name: total / (len(fitness) * evolution.std**2) for name, total in totals.items()}


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
    evolution = strategy(None, model, **how)
    expected = explicit(evolution, inputs, fitness)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    told = evolution.tell(fitness)
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
    """Return 1 / (N σ²) Σ_n F_n ΔW_n for many seeds at once, (generations, entries)."""
    model = flipout.perturb(zeros(), flipout.Gaussian(STD), scheme=scheme, where="*")
    images = (False, True) if antithetic else (False,)

    def estimate(seed: Tensor) -> Tensor:
        total: Any = 0
        for image in images:
            with flipout.hold(model, seed=seed, group=group // len(images), antithetic=image):
                told = fitness(model(A.expand(N // len(images), 3)))
                sums = {id(parameter): total for parameter, total in weighted_sums(model, told)}
                total = total + torch.cat([sums[id(parameter)].flatten() for parameter in model.parameters()])
        return total / (N * STD**2)

    return torch.func.vmap(estimate, chunk_size=1000)(many_draws.seeds(generations)).detach()


def test_the_estimates_of_a_strategy() -> None:
    """A strategy's estimates have the distribution of `estimates`, which the tests below use."""
    how = {"population": N, "group": 6, "std": STD, "shaping": "raw", "optimizer": Still}
    evolution = es.EvolutionStrategy(zeros(), lambda p: quadratic(p(A.expand(p.size, 3))), **how)
    evolution.run(1000)
    assert isinstance(evolution.optimizer, Still)
    assert_same_distribution(-torch.stack(evolution.optimizer.seen), estimates(quadratic, 1000))


@pytest.mark.parametrize("antithetic", [False, True], ids=["plain", "antithetic"])
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_on_a_quadratic_the_mean_is_the_analytic_gradient(scheme: Any, antithetic: bool) -> None:
    """Smoothing a quadratic only adds a constant, so the estimate has the gradient at the mean weights."""
    gradient = torch.cat((torch.outer(TARGET, A).flatten(), TARGET))
    seen = estimates(quadratic, 20_000, scheme, antithetic=antithetic)
    assert_mean(seen, gradient)
    with pytest.raises(AssertionError, match="mean"):
        assert_mean(seen, 1.1 * gradient)


@pytest.mark.parametrize("std", [0.1, 0.3])
@pytest.mark.parametrize("scheme", [*SCHEMES, *map(flipout.LowRank, (1, 4, 16))], ids=str)
def test_where_the_fitness_bends_the_mean_of_low_rank_noise_is_no_gradient(scheme: Any, std: float) -> None:
    """Compare the mean estimate for sin(w · x) at w̄ = 0, with sixteen inputs of size 1 and t = 16 σ².

    The smoothed fitness has the gradient e^{−t/2} in each entry, and so has the mean estimate of Gaussian noise. For
    noise of rank r the mean estimate is (1 + t/r)^{−(r/2 + 1)}: at σ = 0.3, 0.54 of the gradient for rank 1. Rank-one
    flips have sin(σ) / σ · cos(σ)¹⁵: at σ = 0.3, 1.02 of it.
    """
    layer, x = nn.Linear(16, 1, bias=False).double(), torch.ones(12, 16, dtype=torch.float64)
    nn.init.zeros_(layer.weight)
    model = flipout.perturb(layer, flipout.Gaussian(std), scheme=scheme)

    def estimate(seed: Tensor) -> Tensor:
        with flipout.hold(model, seed=seed):
            ((_, total),) = weighted_sums(model, model(x).sin().squeeze(1))
        return total.flatten() / (12 * std**2)

    seen = torch.func.vmap(estimate, chunk_size=1000)(many_draws.seeds(20_000)).detach().mean(1)
    t, rank = 16 * std**2, getattr(scheme, "rank", None)
    gradient = math.exp(-t / 2)
    expected = gradient if rank is None else (1 + t / rank) ** -(rank / 2 + 1)
    if scheme == "rank_one":
        expected = math.sin(std) / std * math.cos(std) ** 15  # E[sin(σ Σ ε_i) ε_1] / σ for sixteen random signs
    assert_mean(seen, expected)
    if rank == 1 and std == 0.3:
        assert float(seen.mean()) / gradient == pytest.approx(0.54, abs=0.02)


@pytest.mark.parametrize("group", [1, 4, 12])
def test_the_variance_of_flipout_is_that_of_independent_noise_and_a_little(group: int) -> None:
    """The variance on a linear fitness with gradient C, for N members in groups of G.

    It is (‖C‖² + C_ij²) / N for independent noise. Flipout adds (G − 1) / N · 2 C_ij²: the theorem's α and γ.
    """
    alpha, gamma = GRADIENT.square().sum() + GRADIENT.square(), 2 * GRADIENT.square()
    assert_variance(estimates(linear, 20_000, group=group), (alpha + (group - 1) * gamma) / N)


def test_the_variance_of_independent_noise() -> None:
    """IdealES: as under flipout with groups of one."""
    assert_variance(estimates(linear, 20_000, "independent"), (GRADIENT.square().sum() + GRADIENT.square()) / N)


def test_mirror_images_take_away_what_is_even() -> None:
    """Pairs cancel the offset and the curvature. The estimate of an even fitness is exactly 0."""
    assert float(estimates(lambda y: y.square().sum(1), 100, antithetic=True).abs().max()) < 1e-12
    seen = (estimates(lambda y: 3 + linear(y), 1000, antithetic=antithetic) for antithetic in (True, False))
    assert_mean_below(*map(squared_deviations, seen))
