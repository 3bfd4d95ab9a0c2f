"""Two processes on loopback: ranks differ, or equal one process with the whole batch."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout.nn.held_weights import held_pass
from tests import many_draws
from tests.networks import gradients, mlp
from tests.ranks import spawned
from tests.statistics import assert_uncorrelated

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
    results: dict[str, Any] = {}
    for name, scheme in SCHEMES.items():
        for share in (False, True):
            model = build(scheme, share_base=share)
            torch.manual_seed(6)
            results[f"{name} {share}"] = step(model, x)
        model = build(scheme)
        with flipout.hold(model, seed=9):
            results[f"{name} seed"] = model(x).detach()
        for share in (False, True):
            model = build(scheme, share_base=share)
            torch.manual_seed(6)
            results[f"{name} {share} unequal"] = [step(model, X[cut]) for cut in shares(rank)]
    results["compiled"] = compiled(build(flipout.Flipout(), share_base=True), rank)
    model = build(flipout.Flipout(), share_base=True)
    torch.manual_seed(6 + rank)  # the generators differ: rank 0's number counts
    parallel = nn.parallel.DistributedDataParallel(model)
    parallel(x).square().sum().backward()
    results["ddp"] = gradients(model)
    return results


def compiled(model: Any, rank: int) -> dict[str, Any]:
    """How far a compiled model is from itself, of equal shares; and what it says of unequal ones."""
    fast, (_, unequal, equal) = torch.compile(model, backend="aot_eager"), (X[cut] for cut in shares(rank))
    torch.manual_seed(6)
    eager = model(equal)
    torch.manual_seed(6)
    apart = (fast(equal) - eager).abs().max().item()
    try:
        fast(unequal)
    except RuntimeError as error:
        return {"apart": apart, "said": str(error)}
    return {"apart": apart, "said": ""}


def shares(rank: int) -> list[slice]:
    """Of three batches: 5 and 1 of the examples, then 1 and 5, then 3 and 3."""
    return [slice(0, cut) if rank == 0 else slice(cut, None) for cut in (5, 1, 3)]


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


@pytest.mark.parametrize("scheme", SCHEMES)
def test_unequal_shares_of_one_base_equal_one_process_with_the_whole_batch(ranks, scheme):
    """Numbered by the share of one rank alone, examples of two ranks would have the same weights."""
    model = build(SCHEMES[scheme])
    torch.manual_seed(6)
    for parts in zip(*(rank[f"{scheme} True unequal"] for rank in ranks), strict=True):
        whole = step(model, X)
        for name in ("y", "weights"):
            torch.testing.assert_close(torch.cat([part[name] for part in parts]), whole[name], rtol=0, atol=1e-12)
        assert len(whole["weights"].unique(dim=0)) == len(X)
        summed = {name: parts[0]["gradients"][name] + parts[1]["gradients"][name] for name in whole["gradients"]}
        torch.testing.assert_close(summed, whole["gradients"], rtol=0, atol=1e-11)


def test_unequal_shares_of_one_base_are_refused_where_nothing_can_be_read(ranks):
    for rank in ranks:
        assert rank["compiled"]["apart"] < 1e-12
        assert "the ranks must have equal shares" in rank["compiled"]["said"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_unequal_shares_of_several_bases_have_different_weights(ranks, scheme):
    mean = build(SCHEMES[scheme])[0].weight.detach()
    for a, b in zip(*(rank[f"{scheme} False unequal"] for rank in ranks), strict=True):
        a, b = (part["weights"] - mean for part in (a, b))
        assert not any(torch.allclose(x.abs(), y.abs(), atol=1e-3) for x in a for y in b)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_signs_that_two_ranks_have_in_common_leave_their_weights_independent(scheme):
    """Example 3 of a rank with 5 is numbered as the first of a rank with 3: the same signs, on two bases. Neither the
    perturbations are correlated, nor their magnitudes, nor the products of two weights."""
    layer = flipout.nn.Linear(2, 2, distribution=flipout.Gaussian(1.0), scheme=SCHEMES[scheme])

    def noise(seed: torch.Tensor, rank: int, examples: int) -> torch.Tensor:
        with flipout.hold(layer, seed=seed):
            session, _ = held_pass(layer)
            session.draw = replace(session.draw, rank=rank)
            layer(torch.zeros(examples, 2))
            return flipout.example_weights(layer)["weight"] - layer.weight

    first, second = (
        torch.func.vmap(lambda seed, r=rank, n=n: noise(seed, r, n))(many_draws.seeds(20_000))
        .detach()[:, index]
        .flatten(1)
        for rank, n, index in ((0, 5, 3), (1, 3, 0))
    )
    assert_uncorrelated(first, second)
    assert_uncorrelated(first.abs(), second.abs())
    assert_uncorrelated(first * first.roll(1, 1), second * second.roll(1, 1))


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
    for rank, results in enumerate(ranks):
        with flipout.hold(model, seed=9):
            torch.testing.assert_close(model(X[rank * EACH : (rank + 1) * EACH]), results[f"{scheme} seed"])
