"""Two processes on loopback: ranks differ, or equal one process with the whole batch."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import flipout
from tests.networks import gradients, mlp
from tests.ranks import spawned

RANKS, EACH = 2, 3
SCHEMES = {"flipout": flipout.Flipout(), "grouped": flipout.Flipout(group=2), "independent": flipout.Independent()}
X = torch.linspace(-1, 1, RANKS * EACH * 4, dtype=torch.float64).view(RANKS * EACH, 4).sin()


def build(scheme: flipout.Scheme, **options) -> Any:
    torch.manual_seed(5)
    return flipout.perturb(mlp().double(), flipout.MeanField(std=0.3), scheme=scheme, where="*", **options)


def step(model: Any, x: torch.Tensor) -> dict[str, Any]:
    """A forward and a backward pass under one fresh held draw."""
    model.zero_grad()
    with flipout.hold(model):
        y = model(x)
        weights = flipout.example_weights(model[0])["weight"].detach()
    y.square().sum().backward()
    return {"y": y.detach(), "weights": weights, "gradients": gradients(model), "frozen": frozen(model, x)}


def frozen(model: Any, x: torch.Tensor) -> torch.Tensor:
    """The outputs of the last example, seen and frozen."""
    other = copy.deepcopy(model)
    with flipout.hold(other):
        seen = other(x)[-1]
        flipout.freeze(other, at="draw", example=len(x) - 1)
    return torch.stack((seen, other(x)[-1])).detach()


def work(rank: int) -> dict[str, Any]:
    x = X[rank * EACH : (rank + 1) * EACH]
    made: dict[str, Any] = {}
    for name, scheme in SCHEMES.items():
        for share in (False, True):
            model = build(scheme, share_base=share)
            torch.manual_seed(6)
            made[f"{name} {share}"] = step(model, x)
        model = build(scheme)
        with flipout.hold(model, seed=9):
            made[f"{name} seed"] = model(x).detach()
    model = build(flipout.Flipout(), share_base=True)
    torch.manual_seed(6 + rank)  # the generators differ: rank 0's number counts
    parallel = nn.parallel.DistributedDataParallel(model)
    parallel(x).square().sum().backward()
    made["ddp"] = gradients(model)
    return made


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return spawned(work, RANKS, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bases_differ_between_ranks_by_default(ranks, scheme):
    a, b = (rank[f"{scheme} False"]["weights"] - build(SCHEMES[scheme])[0].weight.detach() for rank in ranks)
    assert not any(torch.allclose(x.abs(), y.abs(), atol=1e-3) for x in a for y in b)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_shared_base_equals_one_process_with_the_whole_batch(ranks, scheme):
    model = build(SCHEMES[scheme])
    torch.manual_seed(6)
    whole = step(model, X)
    parts = [rank[f"{scheme} True"] for rank in ranks]
    for name in ("y", "weights"):
        torch.testing.assert_close(torch.cat([part[name] for part in parts]), whole[name], rtol=0, atol=1e-12)
    summed = {name: parts[0]["gradients"][name] + parts[1]["gradients"][name] for name in whole["gradients"]}
    torch.testing.assert_close(summed, whole["gradients"], rtol=0, atol=1e-11)


def test_distributed_data_parallel_averages_to_the_whole_batch(ranks):
    model = build(flipout.Flipout())
    torch.manual_seed(6)
    model(X).square().sum().backward()
    for rank in ranks:
        expected = {name: g / RANKS for name, g in gradients(model).items()}
        torch.testing.assert_close(rank["ddp"], expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("case", [f"{scheme} {share}" for scheme in SCHEMES for share in (False, True)])
def test_freeze_counts_the_examples_of_its_own_rank(ranks, case):
    for rank in ranks:
        torch.testing.assert_close(*rank[case]["frozen"])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_seed_folds_nothing(ranks, scheme):
    model = build(SCHEMES[scheme])
    for rank, made in enumerate(ranks):
        with flipout.hold(model, seed=9):
            torch.testing.assert_close(model(X[rank * EACH : (rank + 1) * EACH]), made[f"{scheme} seed"])
