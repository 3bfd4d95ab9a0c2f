"""LockedDropout: one mask per sequence and feature, over all time steps."""

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence, unpack_sequence

from flipout.errors import InvalidInput
from flipout.regularizers import LockedDropout
from tests.statistics import assert_mean, assert_probability


@pytest.mark.parametrize("batch_first", [False, True])
def test_masks_stay_over_time_and_differ_between_sequences(batch_first: bool) -> None:
    x = torch.rand(5, 300, 7) + 1
    y = LockedDropout(0.35, batch_first)(x.transpose(0, 1) if batch_first else x)
    factor = (y.transpose(0, 1) if batch_first else y) / x
    assert torch.equal(factor == 0, (factor == 0)[:1].expand_as(factor))
    torch.testing.assert_close(factor[factor != 0], torch.full_like(factor[factor != 0], 1 / 0.65))
    assert_probability(int((factor[0] == 0).sum()), factor[0].numel(), 0.35)
    assert_probability(int(((factor[0, ::2] == 0) & (factor[0, 1::2] == 0)).sum()), 150 * 7, 0.35**2)


def test_packed_sequences() -> None:
    sequences = [torch.rand(length, 6) + 1 for length in (2, 5, 3)]
    packed = pack_sequence(sequences, enforce_sorted=False)
    dropped = LockedDropout(0.5)(packed)
    assert isinstance(dropped, PackedSequence)
    assert torch.equal(dropped.batch_sizes, packed.batch_sizes)
    factors = [y / x for y, x in zip(unpack_sequence(dropped), sequences, strict=True)]
    for factor in factors:
        assert torch.equal(factor, factor[:1].round().expand_as(factor))
        assert set(factor.unique().tolist()) <= {0.0, 2.0}
    assert len({tuple(factor[0].tolist()) for factor in factors}) > 1


def test_one_sequence() -> None:
    factor = LockedDropout(0.5)(torch.ones(5, 40))
    assert isinstance(factor, torch.Tensor)
    assert factor.shape == (5, 40)
    assert torch.equal(factor, factor[:1].expand_as(factor))
    assert set(factor.unique().tolist()) == {0.0, 2.0}


def test_the_mean_is_the_input() -> None:
    x = torch.randn(1, 1, 5).double()
    assert_mean(LockedDropout(0.4)(x.expand(1, 10_000, 5))[0], x[0, 0])  # pyright: ignore[reportArgumentType]


def test_nothing_happens_in_eval_mode_or_at_0() -> None:
    x = torch.randn(3, 2, 4)
    assert LockedDropout(0.5).eval()(x) is x
    assert LockedDropout(0.0)(x) is x


def test_gradients_see_the_mask() -> None:
    x = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        y = LockedDropout(0.5)(x)
        assert isinstance(y, torch.Tensor)
        return y

    assert torch.autograd.gradcheck(f, x)


@pytest.mark.parametrize("x", [torch.ones(4), torch.ones(2, 3, 4, 5), torch.ones(2, 3, 4).long()])
def test_bad_input(x: torch.Tensor) -> None:
    with pytest.raises(InvalidInput, match=r"LockedDropout: input of shape .* expected floating-point \(time, N, feat"):
        LockedDropout(0.5)(x)
