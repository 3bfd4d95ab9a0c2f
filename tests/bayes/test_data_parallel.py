"""Two processes on loopback: the averaged gradient of the ELBO is that of one process with the whole batch."""

from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout.bayes import ELBO, Guard, Normal, ScaleMixture, Skipped
from flipout.errors import Unsupported
from tests.networks import gradients, mlp
from tests.ranks import spawned

RANKS = 2
X = torch.linspace(-1, 1, 24, dtype=torch.float64).view(6, 4).sin()
Y = torch.arange(6) % 3
PRIORS = {"closed form": Normal(0.0, 0.5, learn_scale=True), "Monte Carlo": ScaleMixture(0.5, 1.0, 0.1)}
SHARES = {"equal": (0, 3, 6), "unequal": (0, 2, 6)}


def build(prior: Any) -> Any:
    torch.manual_seed(5)
    return flipout.perturb(mlp().double(), flipout.MeanField(std=0.3, prior=prior), share_base=True)


def work(rank: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    half = slice(3 * rank, 3 * rank + 3)
    for kind, prior in PRIORS.items():
        for share, bounds in SHARES.items():
            model = build(prior)
            elbo = ELBO(nn.parallel.DistributedDataParallel(model), "categorical", num_data=60)
            here = slice(bounds[rank], bounds[rank + 1])
            with flipout.hold(model, seed=7, first=bounds[rank]):
                elbo(X[here], Y[here], batch=3).loss.backward()
            results[f"{kind} {share}"] = gradients(model)
        model = build(prior)
        torch.manual_seed(8 + rank)  # a fresh draw: rank 0's number counts
        elbo = ELBO(nn.parallel.DistributedDataParallel(model), "categorical", num_data=60)
        elbo(X[half], Y[half]).loss.backward()
        results[f"{kind} fresh"] = gradients(model)
    model = build(PRIORS["closed form"])
    elbo = ELBO(model, "gaussian", num_data=60)
    parallel = nn.parallel.DistributedDataParallel(elbo)
    with flipout.hold(model, seed=7, first=3 * rank):
        parallel(X[half], X[half, :3]).loss.backward()
    results["learned noise"] = gradients(elbo)
    results["refused"] = refusal(model, "gaussian")
    results["refused pairs"] = refusal(model, "categorical", antithetic=True)
    results["guard"] = guarded(rank)
    return results


def refusal(model: Any, likelihood: Any, **how: Any) -> str:
    try:
        ELBO(nn.parallel.DistributedDataParallel(model), likelihood, num_data=60, **how)
    except Unsupported as error:
        return str(error)
    return ""


def guarded(rank: int) -> list[Any]:
    """A gradient that is bad on one rank alone, as a sharded one is."""
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.tensor([1.0, float("nan") if rank else 1.0])
    guard = Guard(torch.optim.SGD([weight], 0.1))
    with pytest.warns(RuntimeWarning):
        guard.step()
    return [tuple(guard.skipped[0]), weight.detach()]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return spawned(work, RANKS, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("kind", PRIORS)
def test_shares_of_a_batch(ranks: list[dict[str, Any]], kind: str, share: str) -> None:
    """Unequal ones too: batch is the mean share, 3."""
    model = build(PRIORS[kind])
    with flipout.hold(model, seed=7):
        ELBO(model, "categorical", num_data=60)(X, Y).loss.backward()
    for rank in ranks:
        torch.testing.assert_close(rank[f"{kind} {share}"], gradients(model), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", PRIORS)
def test_a_fresh_draw(ranks: list[dict[str, Any]], kind: str) -> None:
    model = build(PRIORS[kind])
    torch.manual_seed(8)
    ELBO(model, "categorical", num_data=60)(X, Y).loss.backward()
    for rank in ranks:
        torch.testing.assert_close(rank[f"{kind} fresh"], gradients(model), rtol=1e-9, atol=1e-12)


def test_learned_noise_is_synchronised_around_the_elbo(ranks: list[dict[str, Any]]) -> None:
    elbo = ELBO(build(PRIORS["closed form"]), "gaussian", num_data=60)
    with flipout.hold(elbo.model, seed=7):
        elbo(X, X[:, :3]).loss.backward()
    for rank in ranks:
        torch.testing.assert_close(rank["learned noise"], gradients(elbo), rtol=1e-6, atol=1e-9)
        assert "DistributedDataParallel(ELBO(model, …))" in rank["refused"]
        assert "antithetic=True): data parallelism expects one forward pass" in rank["refused pairs"]


def test_all_ranks_skip_together(ranks: list[dict[str, Any]]) -> None:
    names = [("group 0, Parameter 0",) if rank else () for rank in range(RANKS)]
    for rank, name in zip(ranks, names, strict=True):
        skipped, weight = rank["guard"]
        assert Skipped(*skipped) == Skipped(0, None, name)
        assert torch.equal(weight, torch.ones(2))
