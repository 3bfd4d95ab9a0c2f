"""Noise: access in any order, and its statistics."""

import math
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from flipout.draws.bits import wrap
from flipout.draws.noise import NOISE, OUTPUT_NOISE, Stream, stream_starts
from flipout.nn.base import parameter_key
from tests.draws.devices import without_numpy
from tests.statistics import (
    assert_distributed,
    assert_frequencies,
    assert_mean,
    assert_probability,
    assert_uncorrelated,
    assert_variance,
)

KEY = parameter_key("layer.weight")


def starts(seed: int = 0, key: int = KEY, field: int = NOISE, count: int = 1, fold: int = 0) -> Tensor:
    return stream_starts(torch.tensor(seed), key, field, 0, count, fold)


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**61 - 1),
    st.integers(0, 2**32),
    st.integers(0, 5),
    st.integers(0, 40),
    st.sampled_from(["normal", "uniform", "sign"]),
)
def test_numpy_and_torch_draw_the_same_noise(seed, key, first, fold, size, kind) -> None:
    """Starting points, and all kinds of noise."""
    seed_tensor, results = torch.tensor(seed), []
    for context in (nullcontext(), without_numpy()):
        with context:
            start = stream_starts(seed_tensor, key, NOISE, first, 1, fold)
            starts = stream_starts(seed_tensor, key, NOISE, first, 3, fold)
            assert torch.equal(start, starts[:1])
            results.append(
                [starts, *(getattr(Stream(at, (size,), torch.float32), kind)(1) for at in (start[0], starts))]
            )
    for by_numpy, by_torch in zip(*results, strict=True):
        if kind == "normal" and by_numpy.is_floating_point():  # logarithms and cosines differ in their last bits
            torch.testing.assert_close(by_numpy, by_torch, rtol=2.0**-20, atol=2.0**-22)
        else:
            assert torch.equal(by_numpy, by_torch)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_normal_noise_is_normal_up_to_its_tails(dtype: torch.dtype) -> None:
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
    """Return the starting point whose first word of normal noise is `word`, by inverting SplitMix64's finaliser."""
    z, modulus = word % 2**64, 2**64
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        z ^= z >> shift ^ z >> 2 * shift
        z = z * pow(factor, -1, modulus) % modulus
    return wrap(z)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("high", [0, 0xFFFFFFFF])
def test_normal_noise_is_finite_for_extreme_words(dtype: torch.dtype, high: int) -> None:
    for low in (0, 0xFFFFFFFF):
        radius = Stream(torch.tensor([start_of(high << 32 | low)]), (2,), dtype).normal().norm()
        expected = math.sqrt(66 * math.log(2)) if high == 0 else 0.0
        assert float(radius) == pytest.approx(expected, rel=1e-6, abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["normal", "uniform", "sign"])
@pytest.mark.parametrize("part", [0, 5])
def test_single_elements_equal_those_of_the_whole(dtype: torch.dtype, kind: str, part: int) -> None:
    start = starts(count=3)
    whole = getattr(Stream(start, (7, 33), dtype), kind)(part).flatten(1)
    element = torch.randint(7 * 33, (3, 50), generator=torch.Generator().manual_seed(0))
    alone = getattr(Stream(start.unsqueeze(1), (7, 33), dtype, element), kind)(part)
    assert torch.equal(alone, whole.gather(1, element))


def test_noise_is_independent() -> None:
    """Between elements, bases, Parameters, seeds, ranks, fields, kinds and parts.

    Magnitudes are compared too: they would show words that are used twice.
    """
    length = 4096

    def drawn(kind: str = "normal", part: int = 0, **origin: int) -> Tensor:
        return getattr(Stream(starts(**origin), (length,), torch.float64), kind)(part).flatten()

    others = [
        *(drawn(part=part) for part in (1, 2, 3, 64)),
        *(drawn(seed=seed) for seed in (1, -1, 2**40)),
        *(drawn(key=key) for key in (KEY ^ 1, KEY ^ 1 << 60, parameter_key("layer.bias"))),
        drawn(fold=1),
        drawn(field=OUTPUT_NOISE),
        *(drawn("sign", part) for part in (0, 1, 2)),
        *(drawn("uniform", part).double() for part in (0, 1, 2)),
    ]
    bases = list(Stream(starts(count=32), (length,), torch.float64).normal())
    together = torch.stack([*bases, *others], 1)
    assert_uncorrelated(together)
    assert_uncorrelated(torch.cat((together[:, :-6].abs(), together[:, -3:]), 1))
    windows = Stream(starts(count=length), (24,), torch.float64).normal()
    assert_uncorrelated(windows)
    assert_uncorrelated(windows.abs())


def test_single_precision_noise_is_double_precision_noise_rounded() -> None:
    """A float32 near 1 has steps of 2⁻²⁴, so the radius r has an error of 2⁻²⁵ / r and the angle one of 2⁻²⁴ · 2π."""
    exact, rounded = (Stream(starts(), (2**16, 2), dtype).normal() for dtype in (torch.float64, torch.float32))
    r = exact.norm(dim=1, keepdim=True)
    assert torch.all((rounded.double() - exact).abs() <= 2.0**-24 * (1 / r + (math.tau + 4) * r))
