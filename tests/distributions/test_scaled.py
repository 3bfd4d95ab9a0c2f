"""ΔŴ is spread ∘ noise, and backward draws the same noise again."""

import pytest
import torch
import torch.nn.functional as F

import flipout
from flipout.distributions.scaled import ScaledNoise, is_spread_fused, sample
from flipout.draws.noise import NOISE, Origin, stream_starts

SHAPE = (3, 4)


def scaled(softplus: bool = False, origin: Origin | None = None) -> ScaledNoise:
    return ScaledNoise(flipout.Gaussian(1.0), SHAPE, torch.float64, origin, softplus)


def starts(count: int = 2) -> torch.Tensor:
    return stream_starts(torch.tensor(5), 11, NOISE, 0, count)


@pytest.mark.parametrize("shape", [(), (3, 1), SHAPE], ids=str)
@pytest.mark.parametrize("softplus", [False, True])
def test_a_spread_of_any_shape_and_its_gradient(shape: tuple[int, ...], softplus: bool) -> None:
    factor = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    noise = scaled().noise(starts())
    expected = (F.softplus(factor) if softplus else factor) * noise
    delta = sample(scaled(softplus), factor, starts(), torch.float64)
    torch.testing.assert_close(delta, expected)
    upstream = torch.randn_like(delta)
    gradients = [torch.autograd.grad(y, factor, upstream)[0] for y in (delta, expected)]
    torch.testing.assert_close(gradients[0], gradients[1])


def test_a_seed_with_an_origin_is_its_start() -> None:
    origin = Origin(11, NOISE, 1, 0)
    factor = torch.ones((), dtype=torch.float64)
    seeded = sample(scaled(origin=origin), factor, torch.tensor(5), torch.float64)
    assert torch.equal(seeded, sample(scaled(), factor, starts()[1], torch.float64))


def test_a_spread_in_double_precision_is_never_left_to_a_kernel() -> None:
    source = torch.zeros(SHAPE, dtype=torch.float64)
    assert not is_spread_fused(source, torch.Size(SHAPE))
    assert not is_spread_fused(None, torch.Size(SHAPE))
    assert not is_spread_fused(torch.zeros(3), torch.Size(SHAPE))
