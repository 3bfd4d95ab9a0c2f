"""Noise by kernel is the noise of the definition: its words to the bit, its normal numbers to a few ulp."""

import math
from importlib import import_module

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import flipout
from flipout.backend import using
from flipout.distributions.base import Distribution
from flipout.distributions.scaled import ScaledNoise, is_spread_fused
from flipout.distributions.scaled import sample as sample_scaled
from flipout.draws.noise import NOISE, OUTPUT_NOISE, Origin, Stream, stream_starts
from tests.draws.test_noise import KEY, start_of
from tests.ops.triton.kernels import CLOSE, DEVICE, MARKS, SEEDS, assert_same, both

pytestmark = MARKS
DTYPES = tuple(CLOSE)
KINDS = ("normal", "uniform", "sign")
INTEGERS = st.integers(-(2**63), 2**63 - 1)


def noise(start: Tensor, kind: str, shape: tuple[int, ...], dtype: torch.dtype, part: int = 0) -> Tensor:
    return getattr(Stream(start, shape, dtype), kind)(part)


def sample(
    distribution: Distribution,
    given: Tensor,
    start: Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    origin: Origin | None = None,
    softplus: bool = False,
) -> Tensor:
    return sample_scaled(ScaledNoise(distribution, shape, given.dtype, origin, softplus), given, start, dtype)


def assert_noise(start: Tensor, kind: str, shape: tuple[int, ...], dtype: torch.dtype, part: int = 0) -> None:
    expected, made = both(lambda device: noise(start.to(device), kind, shape, dtype, part))
    assert_same(expected, made, **(CLOSE[dtype] if kind == "normal" else {}))


def starts(*shape: int) -> Tensor:
    return torch.randint(-(2**63), 2**63 - 1, shape)


def test_empty_memory_is_poisoned() -> None:
    some = torch.zeros(3, device=DEVICE)
    for made in (some.new_empty(3), torch.empty_like(some), torch.empty(3, device=DEVICE, dtype=torch.float8_e4m3fn)):
        assert made.float().isnan().all()
    assert (torch.empty(3, device=DEVICE, dtype=torch.int64) == 2**63 - 1).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [0, 5])
def test_noise_of_every_kind_and_dtype(kind: str, dtype: torch.dtype, part: int) -> None:
    assert_noise(starts(3), kind, (7, 33), dtype, part)


@given(
    st.sampled_from(KINDS),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=2),
    st.lists(st.integers(0, 70) | st.just(1), max_size=2),
    st.integers(0, 2**20),
)
def test_noise_of_any_shape(kind: str, dtype: torch.dtype, bases: list[int], shape: list[int], part: int) -> None:
    assert_noise(starts(*bases), kind, tuple(shape), dtype, part)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("narrow", [2**30, 0])
def test_noise_over_many_programs_in_either_width_of_index(
    kind: str, narrow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flipout.ops.triton.base._NARROW", narrow)
    streams = import_module("flipout.ops.triton.streams")
    for name in ("_launch_halves", "_launch_bits"):
        monkeypatch.setattr(streams, name, getattr(streams, name).__wrapped__)  # which keeps nothing
    assert_noise(starts(3), kind, (1537,), torch.float32)


def test_starting_points_need_not_be_contiguous() -> None:
    start = starts(4, 3)
    for view in (start.T, start[:, 1], start[0, 0].expand(3)):
        assert_noise(view, "normal", (5,), torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("high", [0, 1, 0xFFFFFFFF, 0xFFFFFF00, 0x80000000])
def test_normal_noise_at_both_ends_of_its_words(dtype: torch.dtype, high: int) -> None:
    start = torch.tensor([start_of(high << 32 | low) for low in (0, 0x3FFFFFFF, 0x40000000, 0xFFFFFFFF)])
    expected, made = both(lambda device: noise(start.to(device), "normal", (2,), dtype))
    assert_same(expected, made, rtol=CLOSE[dtype]["rtol"], atol=1e-7 if dtype == torch.float32 else 1e-15)
    largest = math.sqrt(66 * math.log(2))
    assert float(made.abs().max()) <= largest * (1 + 1e-6)
    if high == 0:
        assert float(made.abs().max()) == pytest.approx(largest, rel=1e-6)


@given(INTEGERS | st.sampled_from(SEEDS), st.integers(0, 2**61 - 1), st.integers(0, 2**32), st.integers(0, 20))
def test_starting_points(seed: int, key: int, first: int, count: int) -> None:
    for field, fold in ((NOISE, 0), (OUTPUT_NOISE, 3)):
        expected, made = both(
            lambda device, field=field, fold=fold: stream_starts(
                torch.tensor(seed, device=device), key, field, first, count, fold
            )
        )
        assert_same(expected, made)


def test_starting_points_over_many_programs() -> None:
    for seed in SEEDS:
        assert_same(
            *both(lambda device, seed=seed: stream_starts(torch.tensor(seed, device=device), KEY, NOISE, 5, 1200))
        )


def drawn(seed: Tensor, w: Tensor) -> Tensor:
    start = stream_starts(seed, KEY, NOISE, 2, 3)
    stream = Stream(start[1], (3, 5), torch.float32)
    return (w * stream.normal() * stream.sign() * stream.uniform() / 2**32).sum()


def test_batched_seeds_are_those_of_a_loop() -> None:
    seeds = torch.tensor(SEEDS, device=DEVICE)
    w = torch.randn(3, 5, device=DEVICE)
    gradient = torch.func.grad(drawn, argnums=1)
    with using("triton"):
        expected = torch.stack([gradient(seed, w) for seed in seeds])
        assert torch.equal(torch.vmap(gradient, (0, None))(seeds, w), expected)
        twice = torch.vmap(torch.vmap(gradient, (0, None)), (1, None))(seeds[:4].view(2, 2), w)
        assert torch.equal(twice, expected[:4].view(2, 2, 3, 5).transpose(0, 1))
        leaf = w.clone().requires_grad_()
        drawn(seeds[0], leaf).backward()
    assert torch.equal(leaf.grad, expected[0])  # pyright: ignore[reportArgumentType]
    with using("eager"):
        torch.testing.assert_close(torch.vmap(gradient, (0, None))(seeds, w), expected, rtol=2.0**-18, atol=0.0)


def test_a_vmapped_batch_stands_at_any_dimension() -> None:
    start = starts(3, 4).to(DEVICE)
    with using("triton"):
        made = torch.vmap(lambda s: noise(s, "normal", (5,), torch.float32), in_dims=1)(start)
        assert torch.equal(made, noise(start.T, "normal", (5,), torch.float32))


@pytest.mark.filterwarnings("ignore")
def test_ops_are_what_torch_expects() -> None:
    start, seed = starts(3).to(DEVICE), starts().to(DEVICE)
    ops = torch.ops.flipout
    for op, *arguments in (
        (ops.normal, start, (3, 5), torch.float32, 1),
        (ops.uniform, start, (3, 5), 1),
        (ops.sign, start, (3, 5), torch.bfloat16, 1),
        (ops.stream_starts, seed, KEY, NOISE, 2, 3, 1),
    ):
        torch.library.opcheck(op.default, tuple(arguments))


def test_an_explicit_request_holds_while_compiling() -> None:
    seed, w = torch.tensor(3, device=DEVICE), torch.randn(3, 5, device=DEVICE)
    with using("triton"):
        compiled = torch.compile(drawn, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(seed, w), drawn(seed, w))
    torch.compiler.reset()


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
    """In one pass either way, cast on the way out."""
    distribution, start, mean = DISTRIBUTIONS[kind], starts(*bases), torch.randn(7, 33)
    slopes = torch.randn(*bases, 7, 33).to(dtype)

    def made(device: torch.device) -> tuple[Tensor, Tensor]:
        w = mean.to(device).requires_grad_()
        spread = distribution.spread(w) + 0 * w.sum()
        delta = sample(distribution, spread, start.to(device), (7, 33), dtype)
        return delta.detach(), torch.autograd.grad(delta, spread, slopes.to(device))[0]

    for expected, own in zip(*both(made), strict=True):
        assert own.dtype == expected.dtype
        assert_same(expected, own, rtol=2.0**-7 if dtype == torch.bfloat16 else 2.0**-18, atol=1e-5)


@pytest.mark.parametrize("size", [1, 31, 32, 64, 96, 2112])
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_noise_of_a_seed_is_that_of_its_start_whatever_its_size(kind: str, size: int) -> None:
    """The kernel mixes the start itself, and stores several numbers at once where the size lets it."""
    distribution, origin, seed = DISTRIBUTIONS[kind], Origin(12345, NOISE, 3, 2), torch.tensor(-77)
    spread, start = torch.rand(size), origin.start(seed)
    expected = sample(distribution, spread, start, (size,), torch.float32)
    several = sample(distribution, spread, torch.stack((start, start + 1)), (size,), torch.float32)
    assert torch.equal(sample(distribution, spread, seed, (size,), torch.float32, origin), expected)
    with using("triton"):
        there = spread.to(DEVICE)
        made = sample(distribution, there, seed.to(DEVICE), (size,), torch.float32, origin)
        alone = sample(distribution, there, start.to(DEVICE), (size,), torch.float32)
        pair = sample(distribution, there, torch.stack((start, start + 1)).to(DEVICE), (size,), torch.float32)
    assert torch.equal(made, alone)
    assert torch.equal(made, pair[0])
    assert_same(several, pair, rtol=2.0**-18, atol=1e-5)


@pytest.mark.parametrize("bases", [(), (3,)], ids=["one base", "three"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_noise_times_the_softplus_of_its_source_and_the_gradient(dtype: torch.dtype, bases: tuple[int, ...]) -> None:
    """From spreads that 1 + exp(ρ) would round to 0, to those where ρ is its own softplus."""
    source = torch.linspace(-16 if dtype == torch.float16 else -60, 40, 7 * 33).view(7, 33).to(dtype)
    start, slopes = starts(*bases), torch.randn(*bases, 7, 33).to(dtype)

    def made(device: torch.device) -> tuple[Tensor, Tensor]:
        rho = source.to(device).requires_grad_()
        start_there = start.to(device)
        if is_spread_fused(rho, rho.shape):
            delta = sample(flipout.MeanField(), rho, start_there, (7, 33), dtype, softplus=True)
        else:
            delta = sample(flipout.MeanField(), torch.nn.functional.softplus(rho), start_there, (7, 33), dtype)
        return delta.detach(), torch.autograd.grad(delta, rho, slopes.to(device))[0]

    # Relative to the largest that noise makes of a spread or a slope: sums over bases may cancel.
    room = {torch.float32: 2.0**-18, torch.bfloat16: 2.0**-6, torch.float16: 2.0**-9}[dtype]
    wide = source.double()
    sizes = (4 * torch.nn.functional.softplus(wide), 16 * wide.sigmoid())
    for expected, own, size in zip(*both(made), sizes, strict=True):
        assert own.dtype == expected.dtype
        error = (own.cpu().double() - expected.double()).abs()
        assert (error <= room * size + (2.0**-23 if dtype == torch.float16 else 0)).all()
        assert (own.cpu().double().abs() > 0).sum() >= (expected.double().abs() > 0).sum() - 3


def test_the_softplus_is_exact_and_a_nan_stays_one() -> None:
    rho = torch.linspace(-30, 25, 4001).to(DEVICE)
    noise, start = flipout.MeanField(), starts().to(DEVICE)
    with using("triton"):
        plain = sample(noise, torch.ones_like(rho), start, tuple(rho.shape), torch.float32)
        made = sample(noise, rho, start, tuple(rho.shape), torch.float32, softplus=True)
        gone = sample(noise, torch.full_like(rho, torch.nan), start, tuple(rho.shape), torch.float32, softplus=True)
    expected = torch.nn.functional.softplus(rho.double()) * plain.double()
    # A GPU's exponential and division are off by 2 units in the last place, its logarithm by 1, three products by ½.
    assert ((made.double() - expected).abs() <= 2.0**-20 * expected.abs()).all()
    assert gone.isnan().all()


def test_only_the_softplus_of_mean_field_is_made_from_its_source() -> None:
    class Own(flipout.MeanField):
        def spread(self, mean: Tensor, **learned: Tensor) -> Tensor:
            return learned["rho"].exp()

    rho = torch.zeros(3, device=DEVICE)
    assert flipout.MeanField().source(rho=rho) is rho
    with using("triton"):
        assert is_spread_fused(rho, rho.shape)
        assert not is_spread_fused(rho, torch.Size((2, 3)))  # a spread that rows share is made by torch
    assert Own().source(rho=rho) is None
    assert flipout.Gaussian(0.1).source() is None


def test_noise_of_ones_own_is_left_to_it() -> None:
    class Triangular(flipout.Gaussian):
        def noise(self, stream: Stream) -> Tensor:
            return (stream.uniform(0) - stream.uniform(1)).to(stream.dtype) * 2.0**-32

    start = starts(2)
    expected, made = both(
        lambda device: sample(
            Triangular(0.5), torch.full((), 0.5, device=device), start.to(device), (9,), torch.float32
        )
    )
    assert_same(expected, made)


@pytest.mark.parametrize("kind", [flipout.Gaussian(0.3), flipout.Rademacher(0.3)], ids=lambda kind: type(kind).__name__)
def test_scaled_noise_of_starting_points_with_gaps(kind: Distribution) -> None:
    start, scaled = torch.arange(12, device=DEVICE)[::3], ScaledNoise(kind, (5,), torch.float32)
    with torch.no_grad(), using("triton"):
        made, expected = (
            sample_scaled(scaled, start.new_ones(()).float(), one, torch.float32) for one in (start, start.clone())
        )
    assert torch.equal(made, expected)


@pytest.mark.parametrize("kind", [flipout.Gaussian(0.3), flipout.Rademacher(0.3)], ids=lambda kind: type(kind).__name__)
@pytest.mark.parametrize("dtypes", [(torch.float64, torch.bfloat16), (torch.bfloat16, torch.float64)], ids=str)
def test_double_precision_and_bfloat16_in_one(kind: Distribution, dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    """A Parameter in double precision whose products are in bfloat16, as under autocast; and the other way round."""
    scaled = ScaledNoise(kind, (40,), dtypes[0])

    def make(device: torch.device) -> Tensor:
        spread, start = torch.full((40,), 0.3, dtype=dtypes[0], device=device), torch.tensor([3, 4], device=device)
        with torch.no_grad():
            return sample_scaled(scaled, spread, start, dtypes[1])

    assert_same(*both(make), rtol=2.0**-6, atol=2.0**-17)
