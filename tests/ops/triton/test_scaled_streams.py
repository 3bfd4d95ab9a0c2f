"""Noise times its spread, by the kernels, is that of the definition, with the gradient of the spread."""

import pytest
import torch
from torch import Tensor

import flipout
from flipout.backend import choosing
from flipout.distributions.base import Distribution
from flipout.distributions.scaled import ScaledNoise, is_spread_fused
from flipout.distributions.scaled import sample as sample_scaled
from flipout.draws.noise import NOISE, Origin, Stream
from tests.ops.triton.kernels import DEVICE, MARKS, assert_same, both
from tests.ops.triton.streams import random_starts

pytestmark = MARKS


def sample(
    distribution: Distribution,
    spread: Tensor,
    start: Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    origin: Origin | None = None,
    softplus: bool = False,
) -> Tensor:
    return sample_scaled(ScaledNoise(distribution, shape, spread.dtype, origin, softplus), spread, start, dtype)


DISTRIBUTIONS = {
    "gaussian": flipout.Gaussian(0.3),
    "gaussian by row": flipout.Gaussian(torch.rand(7, 1) + 0.1),
    "multiplicative": flipout.MultiplicativeGaussian(0.3),
    "half dropped": flipout.DropConnect(0.5),
    "some dropped": flipout.DropConnect(0.3),
    "signs": flipout.Rademacher(0.3),
}


@pytest.mark.parametrize("bases", [(), (3,)], ids=["one base", "three"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_noise_times_its_spread_and_the_gradient(kind: str, dtype: torch.dtype, bases: tuple[int, ...]) -> None:
    """Both in one pass, cast when written."""
    distribution, start, mean = DISTRIBUTIONS[kind], random_starts(*bases), torch.randn(7, 33)
    slopes = torch.randn(*bases, 7, 33).to(dtype)

    def draw(device: torch.device) -> tuple[Tensor, Tensor]:
        w = mean.to(device).requires_grad_()
        spread = distribution.spread(w) + 0 * w.sum()
        delta = sample(distribution, spread, start.to(device), (7, 33), dtype)
        return delta.detach(), torch.autograd.grad(delta, spread, slopes.to(device))[0]

    for expected, actual in zip(*both(draw), strict=True):
        assert actual.dtype == expected.dtype
        assert_same(expected, actual, rtol=2.0**-7 if dtype == torch.bfloat16 else 2.0**-18, atol=1e-5)


@pytest.mark.parametrize("size", [1, 31, 32, 64, 96, 2112])
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_noise_of_a_seed_is_noise_of_its_start(kind: str, size: int) -> None:
    """The kernel mixes the start itself, and stores several numbers at once if the size allows it."""
    distribution, origin, seed = DISTRIBUTIONS[kind], Origin(12345, NOISE, 3, 2), torch.tensor(-77)
    spread, start = torch.rand(size), origin.start(seed)
    expected = sample(distribution, spread, start, (size,), torch.float32)
    several = sample(distribution, spread, torch.stack((start, start + 1)), (size,), torch.float32)
    assert torch.equal(sample(distribution, spread, seed, (size,), torch.float32, origin), expected)
    with choosing("triton"):
        there = spread.to(DEVICE)
        from_seed = sample(distribution, there, seed.to(DEVICE), (size,), torch.float32, origin)
        alone = sample(distribution, there, start.to(DEVICE), (size,), torch.float32)
        pair = sample(distribution, there, torch.stack((start, start + 1)).to(DEVICE), (size,), torch.float32)
    assert torch.equal(from_seed, alone)
    assert torch.equal(from_seed, pair[0])
    assert_same(several, pair, rtol=2.0**-18, atol=1e-5)


@pytest.mark.parametrize("bases", [(), (3,)], ids=["one base", "three"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_noise_times_the_softplus_of_its_source_and_the_gradient(dtype: torch.dtype, bases: tuple[int, ...]) -> None:
    """From ρ whose spread 1 + exp(ρ) would round to 0, to ρ that equals its softplus."""
    source = torch.linspace(-16 if dtype == torch.float16 else -60, 40, 7 * 33).view(7, 33).to(dtype)
    start, slopes = random_starts(*bases), torch.randn(*bases, 7, 33).to(dtype)

    def draw(device: torch.device) -> tuple[Tensor, Tensor]:
        rho = source.to(device).requires_grad_()
        start_there = start.to(device)
        if is_spread_fused(rho, rho.shape):
            delta = sample(flipout.MeanField(), rho, start_there, (7, 33), dtype, softplus=True)
        else:
            delta = sample(flipout.MeanField(), torch.nn.functional.softplus(rho), start_there, (7, 33), dtype)
        return delta.detach(), torch.autograd.grad(delta, rho, slopes.to(device))[0]

    # Relative to the largest product of noise with a spread or a slope, since sums over bases may cancel.
    room = {torch.float32: 2.0**-18, torch.bfloat16: 2.0**-6, torch.float16: 2.0**-9}[dtype]
    wide = source.double()
    sizes = (4 * torch.nn.functional.softplus(wide), 16 * wide.sigmoid())
    for expected, actual, size in zip(*both(draw), sizes, strict=True):
        assert actual.dtype == expected.dtype
        error = (actual.cpu().double() - expected.double()).abs()
        assert (error <= room * size + (2.0**-23 if dtype == torch.float16 else 0)).all()
        assert (actual.cpu().double().abs() > 0).sum() >= (expected.double().abs() > 0).sum() - 3


def test_the_softplus_is_exact_and_keeps_nan() -> None:
    rho = torch.linspace(-30, 25, 4001).to(DEVICE)
    noise, start = flipout.MeanField(), random_starts().to(DEVICE)
    with choosing("triton"):
        plain = sample(noise, torch.ones_like(rho), start, tuple(rho.shape), torch.float32)
        scaled = sample(noise, rho, start, tuple(rho.shape), torch.float32, softplus=True)
        spoilt = sample(noise, torch.full_like(rho, torch.nan), start, tuple(rho.shape), torch.float32, softplus=True)
    expected = torch.nn.functional.softplus(rho.double()) * plain.double()
    # On a GPU the exponential and the division are off by up to 2 ulp, the logarithm by 1, each of three products by ½.
    assert ((scaled.double() - expected).abs() <= 2.0**-20 * expected.abs()).all()
    assert spoilt.isnan().all()


def test_only_mean_fields_own_softplus_is_left_to_the_kernel() -> None:
    class Exponential(flipout.MeanField):
        def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
            return learned["rho"].exp()

    rho = torch.zeros(3, device=DEVICE)
    assert flipout.MeanField().source(rho=rho) is rho
    with choosing("triton"):
        assert is_spread_fused(rho, rho.shape)
        assert not is_spread_fused(rho, torch.Size((2, 3)))  # torch computes a spread that rows share
    assert Exponential().source(rho=rho) is None
    assert flipout.Gaussian(0.1).source() is None


def test_a_distributions_own_noise_is_used() -> None:
    class Triangular(flipout.Gaussian):
        def noise(self, stream: Stream) -> Tensor:
            return (stream.uniform(0) - stream.uniform(1)).to(stream.dtype) * 2.0**-32

    start = random_starts(2)
    expected, actual = both(
        lambda device: sample(
            Triangular(0.5), torch.full((), 0.5, device=device), start.to(device), (9,), torch.float32
        )
    )
    assert_same(expected, actual)


@pytest.mark.parametrize("kind", [flipout.Gaussian(0.3), flipout.Rademacher(0.3)], ids=lambda kind: type(kind).__name__)
def test_starting_points_need_not_be_contiguous(kind: Distribution) -> None:
    start, scaled = torch.arange(12, device=DEVICE)[::3], ScaledNoise(kind, (5,), torch.float32)
    with torch.no_grad(), choosing("triton"):
        actual, expected = (
            sample_scaled(scaled, start.new_ones(()).float(), points, torch.float32)
            for points in (start, start.clone())
        )
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("kind", [flipout.Gaussian(0.3), flipout.Rademacher(0.3)], ids=lambda kind: type(kind).__name__)
@pytest.mark.parametrize("dtypes", [(torch.float64, torch.bfloat16), (torch.bfloat16, torch.float64)], ids=str)
def test_double_precision_and_bfloat16_in_one_call(kind: Distribution, dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    """A Parameter in double precision with products in bfloat16, as under autocast, and the other way round."""
    scaled = ScaledNoise(kind, (40,), dtypes[0])

    def make(device: torch.device) -> Tensor:
        spread, start = torch.full((40,), 0.3, dtype=dtypes[0], device=device), torch.tensor([3, 4], device=device)
        with torch.no_grad():
            return sample_scaled(scaled, spread, start, dtypes[1])

    assert_same(*both(make), rtol=2.0**-6, atol=2.0**-17)
