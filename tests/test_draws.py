"""Seed and counter in, replayable bits out: known answers, access in any order, the statistics of what comes out."""

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

import flipout
from flipout.draws import bits
from flipout.draws import noise as noise_module
from flipout.draws import signs as signs_module
from flipout.draws.bits import wrap
from flipout.draws.draw import fresh_seed
from flipout.draws.noise import NOISE, OUTPUT_NOISE, Stream, stream_starts
from flipout.draws.signs import sign_at, sign_masks, sign_words, unpack
from flipout.nn.base import parameter_key
from tests.statistics import (
    assert_distributed,
    assert_frequencies,
    assert_mean,
    assert_probability,
    assert_uncorrelated,
    assert_variance,
)

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
KEY = parameter_key("layer.weight")


def signs(seed: int, key: int, over: list[tuple[int, int]], first: int, count: int, dtype: torch.dtype) -> list[Tensor]:
    words = sign_words(torch.tensor(seed), key, over, first, count)
    return [unpack(word, features, dtype) for word, (_, features) in zip(words, over, strict=True)]


def some_signs(
    seed: int = 0,
    key: int = KEY,
    dim: int = 0,
    first: int = 0,
    count: int = 4096,
    features: int = 160,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    (made,) = signs(seed, key, [(dim, features)], first, count, dtype)
    return made


def starts(seed: int = 0, key: int = KEY, field: int = NOISE, count: int = 1, fold: int = 0) -> Tensor:
    return stream_starts(torch.tensor(seed), key, field, 0, count, fold)


@contextmanager
def by_torch() -> Iterator[None]:
    """As on any device but a CPU."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (bits, signs_module, noise_module):
            patched.setattr(module, "uses_numpy", lambda _: False)
        yield


# Signs -----------------------------------------------------------------------------------------------------------


def test_mix_gives_the_known_answers_of_splitmix64() -> None:
    """Those that every implementation of SplitMix64 prints for seed 1234567; in torch, in numpy and for one number."""
    answers = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    states = [wrap(1234567 + (i + 1) * bits.GAMMA) for i in range(5)]
    assert [bits.mix_number(state) % 2**64 for state in states] == answers
    assert [int(word) % 2**64 for word in bits.mix(torch.tensor(states))] == answers
    assert bits.mix_array(torch.tensor(states).numpy().view("uint64")).tolist() == answers


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**61 - 1),
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 300)), min_size=1, max_size=3),
    st.integers(0, 2**32 - 20),
    st.integers(0, 20),
    st.integers(1, 25),
    st.sampled_from(DTYPES),
)
def test_signs_of_numpy_are_those_of_torch(seed, key, over, first, count, some, dtype) -> None:
    """numpy's on a CPU, against torch's as on any device: as numbers, and as masks of sign bits."""
    with by_torch():
        words = sign_words(torch.tensor(seed), key, over, first, count)
        expected = [[form(w, size, dtype) for w, (_, size) in zip(words, over)] for form in (unpack, sign_masks)]  # noqa: B905
    for masks in (False, True):
        made = list(signs_module.signs(torch.tensor(seed), key, over, first, count, dtype, masks, some))
        assert len(made) == max(-(-count // some), 1)
        for j in range(len(over)):
            assert torch.equal(torch.cat([part[j] for part in made]), expected[masks][j])


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**61 - 1),
    st.integers(0, 2**32),
    st.integers(0, 5),
    st.integers(0, 40),
    st.sampled_from(["normal", "uniform", "sign"]),
)
def test_noise_of_numpy_is_that_of_torch(seed, key, first, fold, size, kind) -> None:
    """numpy's on a CPU, against torch's as on any device: starting points, and all noise."""
    there, made = torch.tensor(seed), []
    for context in (nullcontext(), by_torch()):
        with context:
            start = stream_starts(there, key, NOISE, first, 1, fold)
            starts = stream_starts(there, key, NOISE, first, 3, fold)
            assert torch.equal(start, starts[:1])
            made.append([starts, *(getattr(Stream(at, (size,), torch.float32), kind)(1) for at in (start[0], starts))])
    for numpy, others in zip(*made, strict=True):
        if kind == "normal" and numpy.is_floating_point():  # logarithms and cosines differ in their last bits
            torch.testing.assert_close(numpy, others, rtol=2.0**-20, atol=2.0**-22)
        else:
            assert torch.equal(numpy, others)


@pytest.mark.parametrize("dim", [0, 1])
def test_one_sign_made_alone_is_that_of_the_matrix(dim: int) -> None:
    whole = some_signs(seed=-5, dim=dim, first=70, count=9, features=300)
    example, feature = torch.arange(70, 79).unsqueeze(1), torch.arange(300)
    assert torch.equal(sign_at(torch.tensor(-5), KEY, dim, example, feature, torch.float32), whole)
    assert sign_at(torch.tensor(-5), KEY, dim, torch.tensor(75), torch.tensor(257), torch.float32) == whole[5, 257]


def test_signs_do_not_depend_on_how_they_are_asked_for() -> None:
    whole = some_signs(count=40, features=300)
    for first, count, features in ((0, 40, 1), (7, 12, 300), (39, 1, 129), (0, 3, 128), (5, 0, 10)):
        part = some_signs(first=first, count=count, features=features)
        assert torch.equal(part, whole[first : first + count, :features])
    for made, dim, features in zip(
        signs(0, KEY, [(1, 200), (0, 300)], 0, 40, torch.float32), (1, 0), (200, 300), strict=True
    ):
        assert torch.equal(made, some_signs(dim=dim, count=40, features=features))


@pytest.mark.parametrize("dtype", DTYPES)
def test_signs_are_exactly_one_in_every_dtype(dtype: torch.dtype) -> None:
    made = some_signs(seed=3, dtype=dtype)
    assert made.dtype == dtype
    assert set(made.unique().tolist()) == {-1.0, 1.0}
    assert torch.equal(made.float(), some_signs(seed=3))


def test_bits_are_uniform() -> None:
    positive = some_signs(count=8192) > 0
    assert_probability(int(positive.sum()), positive.numel(), 0.5)
    assert_mean(positive, 0.5, std=0.5)  # of each feature
    assert_mean(some_signs(count=160, features=4096).T, 0.0, std=1.0)  # of each example
    byte = (positive.view(8192, 20, 8) * 2 ** torch.arange(8)).sum(-1)
    assert_frequencies(torch.bincount(byte.flatten(), minlength=256))


def test_signs_are_uncorrelated() -> None:
    made = some_signs()
    assert_uncorrelated(made)  # over features
    assert_uncorrelated(some_signs(count=160, features=4096).T)  # over examples
    assert_uncorrelated(made, some_signs(dim=1))
    assert_uncorrelated(made, some_signs(first=4096))
    for key in (parameter_key("layer.bias"), KEY ^ 1, KEY ^ 1 << 60):
        assert_uncorrelated(made, some_signs(key=key))
    for seed in (1, -1, 2**32, 2**62):
        assert_uncorrelated(made, some_signs(seed=seed))


def test_rank_one_sign_matrices_are_uncorrelated() -> None:
    r, s = some_signs(features=12), some_signs(dim=1, features=12)
    assert_uncorrelated((r.unsqueeze(2) * s.unsqueeze(1)).flatten(1))


# Noise -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_normal_noise_is_normal_to_its_tails(dtype: torch.dtype) -> None:
    z = Stream(starts(count=2), (2**19,), dtype).normal()
    assert_distributed(z, stats.norm())
    assert_mean(z.flatten(), 0.0, std=1.0)
    assert_variance(z.flatten(), 1.0, kurtosis=3)
    for limit in (3.0, 4.0, 4.5):
        tail = float(stats.norm.sf(limit))
        assert_probability(int((z > limit).sum()), z.numel(), tail)
        assert_probability(int((z < -limit).sum()), z.numel(), tail)


def test_uniform_noise_and_sign_noise_are_uniform() -> None:
    u = Stream(starts(), (2**18,), torch.float32).uniform()
    assert int(u.min()) >= 0
    assert int(u.max()) < 2**32
    assert_distributed(u.double() / 2**32, stats.uniform())
    assert_frequencies(torch.bincount((u & 0xFF).flatten(), minlength=256))
    sign = Stream(starts(), (2**18,), torch.float32).sign()
    assert set(sign.unique().tolist()) == {-1.0, 1.0}
    assert_probability(int((sign > 0).sum()), sign.numel(), 0.5)


def start_of(word: int) -> int:
    """The starting point whose first word of normal noise is this: SplitMix64's finaliser, undone."""
    z, modulus = word % 2**64, 2**64
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        z ^= z >> shift ^ z >> 2 * shift
        z = z * pow(factor, -1, modulus) % modulus
    return wrap(z)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("high", [0, 0xFFFFFFFF])
def test_normal_noise_is_finite_at_both_ends_of_its_words(dtype: torch.dtype, high: int) -> None:
    for low in (0, 0xFFFFFFFF):
        radius = Stream(torch.tensor([start_of(high << 32 | low)]), (2,), dtype).normal().norm()
        expected = math.sqrt(66 * math.log(2)) if high == 0 else 0.0
        assert float(radius) == pytest.approx(expected, rel=1e-6, abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["normal", "uniform", "sign"])
@pytest.mark.parametrize("part", [0, 5])
def test_single_elements_are_those_of_the_whole(dtype: torch.dtype, kind: str, part: int) -> None:
    start = starts(count=3)
    whole = getattr(Stream(start, (7, 33), dtype), kind)(part).flatten(1)
    element = torch.randint(7 * 33, (3, 50), generator=torch.Generator().manual_seed(0))
    alone = getattr(Stream(start.unsqueeze(1), (7, 33), dtype, element), kind)(part)
    assert torch.equal(alone, whole.gather(1, element))


def test_noise_is_independent() -> None:
    """Over elements, bases, Parameters, seeds, ranks, uses and parts; in magnitude too, where words would be shared."""
    length = 4096

    def made(kind: str = "normal", part: int = 0, **where: int) -> Tensor:
        return getattr(Stream(starts(**where), (length,), torch.float64), kind)(part).flatten()

    others = [
        *(made(part=part) for part in (1, 2, 3, 64)),
        *(made(seed=seed) for seed in (1, -1, 2**40)),
        *(made(key=key) for key in (KEY ^ 1, KEY ^ 1 << 60, parameter_key("layer.bias"))),
        made(fold=1),
        made(field=OUTPUT_NOISE),
        *(made("sign", part) for part in (0, 1, 2)),
        *(made("uniform", part).double() for part in (0, 1, 2)),
    ]
    bases = list(Stream(starts(count=32), (length,), torch.float64).normal())
    together = torch.stack([*bases, *others], 1)
    assert_uncorrelated(together)
    assert_uncorrelated(torch.cat((together[:, :-6].abs(), together[:, -3:]), 1))
    windows = Stream(starts(count=length), (24,), torch.float64).normal()
    assert_uncorrelated(windows)
    assert_uncorrelated(windows.abs())


def test_single_precision_noise_is_double_precision_noise_rounded() -> None:
    """Near 1 a float32 has steps of 2⁻²⁴, so the radius r is off by 2⁻²⁵ / r; the angle by 2⁻²⁴ · 2π."""
    exact, rounded = (Stream(starts(), (2**16, 2), dtype).normal() for dtype in (torch.float64, torch.float32))
    r = exact.norm(dim=1, keepdim=True)
    assert torch.all((rounded.double() - exact).abs() <= 2.0**-24 * (1 / r + (math.tau + 4) * r))


# The global generator --------------------------------------------------------------------------------------------


def network() -> nn.Module:
    return flipout.perturb(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), flipout.Gaussian(0.5))


def test_the_global_generator_is_read_once_per_draw_and_never_reset() -> None:
    model, x = network(), torch.randn(5, 3)
    before = torch.get_rng_state()
    model(x).sum().backward()
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    fresh_seed(torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), after)
    assert not torch.equal(before, after)


def test_the_global_generator_is_not_read_without_a_draw() -> None:
    model, x = network(), torch.randn(5, 3)
    before = torch.get_rng_state()
    with flipout.hold(model, seed=3):
        model(x)
    model.eval()(x)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_manual_seed_makes_a_run_repeatable() -> None:
    runs = []
    for _ in range(2):
        torch.manual_seed(11)
        model, x = network(), torch.randn(5, 3)
        runs.append([model(x), model(x), torch.rand(2)])
    first, second = runs
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])
