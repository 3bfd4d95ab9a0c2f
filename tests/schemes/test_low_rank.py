"""Low-rank noise: every op sees the weights that `example_weights` shows, and these have the right moments."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flipout
from flipout import errors
from tests import many_draws, oracles
from tests.networks import TiedLM
from tests.oracles import Case, Draws, tensor
from tests.statistics import assert_covariance, assert_mean, assert_uncorrelated, assert_variance

X = torch.randn(2, 3, dtype=torch.float64)


def perturbed_linear(rank: int) -> flipout.nn.Linear:
    scheme = flipout.LowRank(rank)
    return flipout.nn.Linear(3, 2, distribution=flipout.Gaussian(0.5), scheme=scheme, where="*", dtype=torch.float64)


CASES: dict[str, Case] = {
    "linear": Case(nn.Linear(5, 3), (tensor(4, 5),), where="*"),
    "tokens": Case(nn.Linear(5, 3), (tensor(4, 6, 5),)),
    "convolution": Case(nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (tensor(4, 4, 5, 5),), where="*"),
    "transposed": Case(nn.ConvTranspose1d(4, 6, 3, stride=2, dilation=2, groups=2), (tensor(4, 4, 5),), where="*"),
    "recurrent": Case(
        nn.GRU(3, 4, batch_first=True), (tensor(4, 5, 3),), where="*", call=lambda module, x: module(x)[0]
    ),
    "embedding": Case(nn.Embedding(7, 3, padding_idx=2), (torch.randint(7, (4, 5)),), where="*"),
    "tied": Case(TiedLM(), (torch.randint(7, (4, 5)),), where="*"),
    "attention": Case(
        nn.MultiheadAttention(4, 2, batch_first=True),
        (tensor(4, 3, 4), tensor(4, 5, 4)),
        (0, 0),
        call=lambda module, q, k: module(q, k, k)[0],
        where="*",
    ),
}


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_the_per_example_loop(name: str, rank: int) -> None:
    case = CASES[name]
    layer = flipout.perturb(
        copy.deepcopy(case.module).double(), flipout.Gaussian(0.3), scheme=flipout.LowRank(rank), where=case.where
    )
    for draw in (Draws(), Draws(first=130, rows=2, antithetic=True), Draws(group=3, cut=0.3)):
        oracles.check_truth(case, layer, draw)
        oracles.check_chunks(case, layer, draw)


@pytest.mark.parametrize("rank", [1, 4])
def test_moments(rank: int) -> None:
    """Mean 0, covariance σ² I within an example and 0 between two, and kurtosis 3 + 6 / rank."""
    layer = perturbed_linear(rank)
    seen = many_draws.weights(layer, X, many_draws.seeds(20_000)) - layer.weight.detach()
    assert_mean(seen, 0.0, std=0.5)
    assert_covariance(seen[:, 0].flatten(1), 0.25 * torch.eye(6))
    assert_uncorrelated(seen[:, 0].flatten(1), seen[:, 1].flatten(1))
    assert_variance(seen, 0.25, kurtosis=3 + 6 / rank)
    assert_mean((seen / 0.5) ** 4, 3 + 6 / rank)


def test_the_perturbation_has_the_rank() -> None:
    layer = flipout.nn.Linear(8, 9, distribution=flipout.Gaussian(0.5), scheme=flipout.LowRank(2), dtype=torch.float64)
    with flipout.hold(layer, seed=3):
        layer(torch.randn(4, 8, dtype=torch.float64))
        seen = flipout.example_weights(layer)["weight"] - layer.weight
    assert torch.linalg.matrix_rank(seen).tolist() == [2] * 4


@pytest.mark.parametrize(
    "noise", [flipout.MultiplicativeGaussian(0.1), flipout.MeanField(), flipout.Gaussian(torch.ones(2, 3))], ids=repr
)
def test_noise_without_one_standard_deviation_is_refused(noise: flipout.Distribution) -> None:
    with pytest.raises(errors.NotLowRank, match="low-rank noise can never serve"):
        flipout.perturb(nn.Linear(3, 2), noise, scheme="low_rank")


@pytest.mark.parametrize("rank", [0, -1, 1.5, True])
def test_a_bad_rank_is_refused(rank: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"LowRank\(rank=.*\): expected a whole number ≥ 1"):
        flipout.LowRank(rank)


def test_an_empty_batch() -> None:
    empty: Tensor = torch.empty(0, 3, dtype=torch.float64)
    assert perturbed_linear(1)(empty).shape == (0, 2)
