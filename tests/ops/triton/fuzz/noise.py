"""Cases for the kernels of signs and noise, on drawn seeds and shapes."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from flipout import Gaussian, Rademacher
from flipout.distributions.scaled import ScaledNoise, sample
from flipout.draws.noise import NOISE, Origin, Stream, stream_starts
from flipout.draws.signs import packed_words
from flipout.draws.signs import sign_batches as drawn_signs

from .memory import FLOATS, NEAR, Memory

KEY = 2**60 + 12345
SIZES = st.sampled_from([0, 1, 2, 3, 31, 32, 33, 64, 65, 128, 129, 200])
FIRSTS = st.sampled_from([0, 5, 2**31])
SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 33]), max_size=3).map(tuple)
STARTS = st.sampled_from([(), (), (1,), (3,), (2, 3), (0,)])
SEEDS = st.sampled_from([(), (), (3,)])  # several are a batch for vmap


def signs(memory: Memory) -> None:
    draw = memory.draw
    over = [(dim, draw(SIZES)) for dim in range(draw(st.integers(1, 2)))]
    first, count, chunk = draw(FIRSTS), draw(st.integers(0, 5)), draw(st.sampled_from([None, 2]))
    dtype, masks = draw(FLOATS), draw(st.booleans())

    def make(seed: Tensor) -> list[Tensor]:
        chunks = drawn_signs(seed, KEY, over, first, count, dtype, masks, chunk)
        return [tensor for tensors in chunks for tensor in tensors]

    memory.compare(lambda seeds: torch.vmap(make)(seeds) if seeds.dim() else make(seeds), memory.seeds(*draw(SEEDS)))


def packed(memory: Memory) -> None:
    draw = memory.draw
    over = [(dim, draw(SIZES)) for dim in range(draw(st.integers(1, 2)))]
    first, count = draw(FIRSTS), draw(st.integers(0, 5))
    memory.compare(lambda seed: [packed_words(seed, KEY, over, first, count)], memory.seeds())


def starts(memory: Memory) -> None:
    draw = memory.draw
    first, count, fold = draw(FIRSTS), draw(st.sampled_from([0, 1, 2, 5, 600])), draw(st.integers(0, 3))

    def make(seed: Tensor) -> list[Tensor]:
        return [stream_starts(seed, KEY, NOISE, first, count, fold)]

    memory.compare(lambda seeds: torch.vmap(make)(seeds) if seeds.dim() else make(seeds), memory.seeds(*draw(SEEDS)))


def normal(memory: Memory) -> None:
    shape, dtype, part = memory.draw(SHAPES), memory.draw(FLOATS), memory.draw(st.integers(0, 1))
    start = memory.seeds(*memory.draw(STARTS))
    memory.compare(lambda start: [Stream(start, shape, dtype).normal(part)], start, near=NEAR[dtype])


def uniform(memory: Memory) -> None:
    shape, part = memory.draw(SHAPES), memory.draw(st.integers(0, 1))
    start = memory.seeds(*memory.draw(STARTS))
    memory.compare(lambda start: [Stream(start, shape, torch.float32).uniform(part)], start)


def sign(memory: Memory) -> None:
    shape, dtype, part = memory.draw(SHAPES), memory.draw(FLOATS), memory.draw(st.integers(0, 1))
    start = memory.seeds(*memory.draw(STARTS))
    memory.compare(lambda start: [Stream(start, shape, dtype).sign(part)], start)


def scaled_noise(memory: Memory) -> None:
    """Noise and the gradient of its spread, which is one number, one for each weight, or one for each weight of each
    base; or the source of a spread."""
    draw = memory.draw
    shape, bases, rounded, dtype = draw(SHAPES), draw(STARTS), draw(FLOATS), draw(FLOATS)
    softplus = rounded != torch.float64 and draw(st.booleans())
    distribution = Gaussian(0.3) if softplus or draw(st.booleans()) else Rademacher(0.3)
    origin = Origin(KEY, NOISE, 3, 1) if bases == () and draw(st.booleans()) else None
    scaled = ScaledNoise(distribution, shape, rounded, origin, softplus)
    size = shape if softplus else draw(st.sampled_from([shape, (), (*bases, *shape)]))

    @torch.no_grad()
    def make(spread: Tensor, grad: Tensor, start: Tensor) -> list[Tensor]:
        delta = sample(scaled, spread, start, dtype)
        return [delta, scaled.gradient(grad, start, spread if softplus else None, spread.shape)]

    spread, grad = memory.numbers(*size, dtype=rounded), memory.numbers(*bases, *shape, dtype=dtype)
    coarser = max(NEAR[rounded], NEAR[dtype])
    memory.compare(make, spread, grad, memory.seeds(*bases), near=4 * coarser)


CASES = {
    "packed_signs": packed,
    "signs": signs,
    "stream_starts": starts,
    "Stream.normal": normal,
    "Stream.uniform": uniform,
    "Stream.sign": sign,
    "scaled_noise": scaled_noise,
}
