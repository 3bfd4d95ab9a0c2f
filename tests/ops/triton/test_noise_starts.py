"""Starting points by the kernel are those of the definition, to the bit, also under torch's transforms."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from flipout.backend import choosing
from flipout.draws.noise import NOISE, OUTPUT_NOISE, Stream, stream_starts
from tests.draws.test_noise import KEY
from tests.ops.triton.kernels import DEVICE, MARKS, SEEDS, assert_same, both
from tests.ops.triton.streams import random_starts

pytestmark = MARKS
INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(INTEGERS | st.sampled_from(SEEDS), st.integers(0, 2**61 - 1), st.integers(0, 2**32), st.integers(0, 20))
def test_any_seed_and_parameter(seed: int, key: int, first: int, count: int) -> None:
    for field, fold in ((NOISE, 0), (OUTPUT_NOISE, 3)):
        expected, actual = both(
            lambda device, field=field, fold=fold: stream_starts(
                torch.tensor(seed, device=device), key, field, first, count, fold
            )
        )
        assert_same(expected, actual)


def test_many_programs() -> None:
    for seed in SEEDS:
        assert_same(
            *both(lambda device, seed=seed: stream_starts(torch.tensor(seed, device=device), KEY, NOISE, 5, 1200))
        )


def noisy_sum(seed: Tensor, w: Tensor) -> Tensor:
    """Use starting points, and all kinds of noise from one of them."""
    start = stream_starts(seed, KEY, NOISE, 2, 3)
    stream = Stream(start[1], (3, 5), torch.float32)
    return (w * stream.normal() * stream.sign() * stream.uniform() / 2**32).sum()


def test_vmap_over_seeds_is_a_loop_over_seeds() -> None:
    seeds = torch.tensor(SEEDS, device=DEVICE)
    w = torch.randn(3, 5, device=DEVICE)
    gradient = torch.func.grad(noisy_sum, argnums=1)
    with choosing("triton"):
        expected = torch.stack([gradient(seed, w) for seed in seeds])
        assert torch.equal(torch.vmap(gradient, (0, None))(seeds, w), expected)
        nested = torch.vmap(torch.vmap(gradient, (0, None)), (1, None))(seeds[:4].view(2, 2), w)
        assert torch.equal(nested, expected[:4].view(2, 2, 3, 5).transpose(0, 1))
        leaf = w.clone().requires_grad_()
        noisy_sum(seeds[0], leaf).backward()
    assert torch.equal(leaf.grad, expected[0])  # pyright: ignore[reportArgumentType]
    with choosing("eager"):
        torch.testing.assert_close(torch.vmap(gradient, (0, None))(seeds, w), expected, rtol=2.0**-18, atol=0.0)


@pytest.mark.filterwarnings("ignore")
def test_the_op_passes_opcheck() -> None:
    torch.library.opcheck(torch.ops.flipout.stream_starts.default, (random_starts().to(DEVICE), KEY, NOISE, 2, 3, 1))


def test_a_request_for_kernels_holds_while_compiling() -> None:
    seed, w = torch.tensor(3, device=DEVICE), torch.randn(3, 5, device=DEVICE)
    with choosing("triton"):
        compiled = torch.compile(noisy_sum, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(seed, w), noisy_sum(seed, w))
    torch.compiler.reset()
