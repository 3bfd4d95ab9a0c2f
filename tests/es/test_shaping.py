"""Shapings map fitness to weights in the update."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from flipout import errors, es
from flipout.es._shaping import shaped, shaping_of

numbers = st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 2.0, 1e6]), min_size=1, max_size=12)


def tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@given(numbers)
def test_centered_ranks(values: list[float]) -> None:
    """They are scipy's average ranks, scaled to −½ … ½. They sum to 0 and depend on the order alone."""
    shaped = es.centered_rank(tensor(values))
    ranks = tensor(stats.rankdata(values).tolist())
    torch.testing.assert_close(shaped, (ranks - 1) / max(len(values) - 1, 1) - 0.5 * (len(values) > 1))
    assert abs(float(shaped.sum())) < 1e-12
    assert torch.equal(shaped, es.centered_rank(tensor([math.atan(v) for v in values])))


@given(numbers)
def test_z_scores(values: list[float]) -> None:
    shaped = es.z_score(tensor(values))
    if len(set(values)) == 1:
        assert shaped.tolist() == [0.0] * len(values)
    else:
        torch.testing.assert_close(shaped.mean(), tensor([0.0])[0], atol=1e-9, rtol=0)
        torch.testing.assert_close(shaped.square().mean(), tensor([1.0])[0])


def test_raw_is_raw() -> None:
    assert es.raw(tensor([1.0, -7.0])).tolist() == [1.0, -7.0]


def test_those_left_out_count_for_nothing() -> None:
    fitness = tensor([3.0, math.nan, 1.0, 2.0])
    assert shaped(es.centered_rank, fitness, fitness.isfinite()).tolist() == [0.5, 0.0, -0.5, 0.0]


def test_unknown() -> None:
    with pytest.raises(errors.InvalidArgument, match="shaping='rank': expected one of"):
        shaping_of("rank")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("wrong", [lambda f: f[:1], lambda f: f / 0, lambda f: 1.0])
def test_a_function_that_does_not_shape(wrong) -> None:
    with pytest.raises(errors.InvalidInput, match="expected one finite number for each"):
        shaped(wrong, tensor([1.0, 2.0]), torch.tensor([True, True]))


def test_large_numbers_have_a_z_score() -> None:
    fitness = torch.randn(6, dtype=torch.float64)
    torch.testing.assert_close(es.z_score(fitness * 1e200), es.z_score(fitness))
