"""The mean of the gradient, which all schemes share, and its variance, in which they differ."""

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout.schemes import SchemeName
from tests import many_draws
from tests.statistics import (
    assert_mean,
    assert_mean_below,
    assert_same_distribution,
    assert_same_mean,
    assert_same_variance,
    squared_deviations,
)

SCHEMES = ("shared", "flipout", "independent")


def batch(examples: int) -> Tensor:
    return torch.randn(examples, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture
def network() -> nn.Module:
    """Return a nonlinear network with learned spreads: gradients reach means, biases and spreads in both layers."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    return flipout.perturb(plain, flipout.MeanField(std=0.4))


@pytest.mark.parametrize("scheme", [*SCHEMES, flipout.Flipout(group=3), "local_reparam"], ids=str)
def test_draws_under_vmap_equal_single_draws(network: nn.Module, scheme: SchemeName | flipout.Scheme) -> None:
    """The tests below draw under vmap, while training uses the hand-written backward of the schemes."""
    x = batch(8)
    for seed, gradients in enumerate(many_draws.gradients(network, x, scheme, many_draws.seeds(3))):
        network.zero_grad()
        with flipout.using(network, scheme=scheme), flipout.hold(network, seed=seed):
            network(x).square().sum(1).mean().backward()
        alone = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
        torch.testing.assert_close(gradients, torch.cat([gradient.flatten() for gradient in alone]))


@pytest.mark.parametrize("scheme", ["flipout", flipout.Flipout(group=3), flipout.Flipout(reuse_signs=True)], ids=str)
def test_the_gradient_is_unbiased(network: nn.Module, scheme: SchemeName | flipout.Scheme) -> None:
    """In each of the 76 entries, to the precision of 20,000 draws of each scheme.

    This precision suffices to tell the mean gradient under noise from the gradient without noise.
    """
    x = batch(8)
    independent = many_draws.gradients(network, x, "independent", many_draws.seeds(20_000))
    other = many_draws.gradients(network, x, scheme, many_draws.seeds(20_000, first=10**6))
    assert_same_mean(other, independent)

    network.eval()(x).square().sum(1).mean().backward()
    plain = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in network.parameters()])
    for noisy in (other, independent):
        with pytest.raises(AssertionError, match="mean"):
            assert_mean(noisy, plain)


def test_the_gradient_of_one_example_has_the_same_distribution_under_every_scheme(network: nn.Module) -> None:
    x = batch(1)
    gradients = [
        many_draws.gradients(network, x, s, many_draws.seeds(10_000, 10**6 * i)) for i, s in enumerate(SCHEMES)
    ]
    for other in gradients[1:]:
        assert_same_mean(gradients[0], other)
        assert_same_variance(gradients[0], other)
        assert_same_distribution(gradients[0], other)


@pytest.mark.parametrize("example", [0, 5])
def test_the_gradient_of_each_example_in_a_batch_is_that_of_the_example_alone(network: nn.Module, example: int) -> None:
    """Observation 1 of the paper: the marginal distribution does not depend on the other examples."""
    x = batch(8)
    kept = torch.zeros(8, dtype=torch.float64)
    kept[example] = 8

    class Picked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * kept.sqrt().unsqueeze(1)

    alone = many_draws.gradients(network, x[example : example + 1], "shared", many_draws.seeds(10_000))
    among = many_draws.gradients(Picked(), x, "flipout", many_draws.seeds(10_000, first=10**6))
    assert_same_mean(alone, among)
    assert_same_variance(alone, among)
    assert_same_distribution(alone, among)


def test_at_256_examples_flipout_is_below_shared_and_above_independent(network: nn.Module) -> None:
    """The paper's theorem for a fixed batch, summed over entries: α/N + γ, below α/N + β + γ and above α/N."""
    x, seed = batch(256), many_draws.seeds(1000)
    shared, flipped, independent = (
        squared_deviations(many_draws.gradients(network, x, s, seed)).sum(1) for s in SCHEMES
    )
    assert_mean_below(flipped, shared)
    assert_mean_below(independent, flipped)


def test_smaller_groups_come_between_flipout_and_independent(network: nn.Module) -> None:
    """γ shrinks with the number of bases, and vanishes if every example has its own base."""
    x = batch(256)
    groups = (256, 16, 1)
    spreads = [
        squared_deviations(
            many_draws.gradients(network, x, flipout.Flipout(group=g), many_draws.seeds(1000, 10**6 * g))
        ).sum(1)
        for g in groups
    ]
    independent = squared_deviations(many_draws.gradients(network, x, "independent", many_draws.seeds(1000))).sum(1)
    assert_mean_below(spreads[1], spreads[0])
    assert_same_mean(spreads[2], independent)


def test_chunks_of_a_batch_equal_the_whole_batch(network: nn.Module) -> None:
    x = batch(8)
    for scheme in (*SCHEMES, flipout.Flipout(group=3), "local_reparam"):
        with flipout.using(network, scheme=scheme):
            with flipout.hold(network, seed=5):
                whole = network(x)
            parts = []
            for first in (0, 2, 7):
                with flipout.hold(network, seed=5, first=first):
                    parts.append(network(x[first : {0: 2, 2: 7, 7: 8}[first]]))
            torch.testing.assert_close(torch.cat(parts), whole)
