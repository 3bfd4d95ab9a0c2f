"""Every argument that must be a whole number goes through one check."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import flipout
from flipout import bayes, es
from flipout._arguments import whole_number
from flipout.errors import InvalidArgument
from tests.networks import mlp

X, P, Y = torch.randn(3, 4), torch.full((3, 2), 0.5), torch.tensor([0, 1, 0])
PRIOR = flipout.MeanField(prior=bayes.Normal())


def noisy(distribution: flipout.Distribution = PRIOR, **how: Any) -> Any:
    return flipout.perturb(mlp(), distribution, **how)


def held(**fields: Any) -> None:
    model = noisy()
    with flipout.hold(model, **fields):
        model(X)


def frozen(example: Any) -> None:
    model = noisy()
    with flipout.hold(model):
        flipout.freeze(model, at="draw", example=example)


def measured(**options: Any) -> None:
    model, options = noisy().eval(), {"batch_sizes": [2], "draws": 2, "repeats": 1, **options}
    flipout.variance.measure(model, nn.functional.cross_entropy, (X, Y), **options)


def strategy(**options: Any) -> es.EvolutionStrategy:
    def adam(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, 0.1)

    settings: dict[str, Any] = {"population": 4, "group": 2, "std": 0.1, "seed": 0, "optimizer": adam, **options}
    return es.EvolutionStrategy(nn.Linear(4, 3), lambda members: torch.zeros(members.size), **settings)


# name → a call with the number, and the smallest number allowed
CALLS: dict[str, tuple[Any, int | None]] = {
    "freeze": (frozen, 0),
    "bins": (lambda n: bayes.reliability(P, Y, n), 1),
    "kl": (lambda n: bayes.kl(noisy(), samples=n), 1),
    "warm_up": (lambda n: bayes.warm_up(n)(1), 1),
    "num_data": (lambda n: bayes.ELBO(noisy(), "categorical", num_data=n), 1),
    "batch_dim": (lambda n: bayes.ELBO(noisy(), "categorical", num_data=5, batch_dim=n), 0),
    "samples": (lambda n: bayes.predict(noisy(), X, n), 1),
    "chunk": (lambda n: bayes.predict(noisy(), X, 2, chunk=n), 1),
    "predict, group": (lambda n: bayes.predict(noisy(), X, 2, group=n), 1),
    "predict, seed": (lambda n: bayes.predict(noisy(), X, 2, seed=n), None),
    "members": (lambda n: es.Local(members=n), 1),
    "memory": (lambda n: es.Local(memory=n), 1),
    "population": (lambda n: strategy(population=n, group=n, antithetic=False), 1),
    "es seed": (lambda n: strategy(seed=n), None),
    "generations": (lambda n: strategy().run(generations=n), 0),
    "first": (lambda n: held(first=n), 0),
    "rows": (lambda n: held(rows=n), 1),
    "group": (lambda n: held(group=n), 1),
    "seed": (lambda n: held(seed=n), None),
    "sign_seed": (lambda n: held(seed=1, sign_seed=n), None),
    "LowRank": (lambda n: noisy(flipout.Gaussian(0.1), scheme=flipout.LowRank(n))(X), 1),
    "Flipout": (lambda n: noisy(scheme=flipout.Flipout(group=n))(X), 1),
    "batch_sizes": (lambda n: measured(batch_sizes=[n]), 1),
    "draws": (lambda n: measured(draws=n), 2),
    "repeats": (lambda n: measured(repeats=n), 1),
    "perturb": (lambda n: noisy(batch_dim=n), 0),
    "perturb, by glob": (lambda n: noisy(batch_dim={"0": n}), 0),
}


@pytest.mark.parametrize("name", CALLS)
def test_numpy_integers_are_accepted_and_other_types_refused(name: str) -> None:
    call, least = CALLS[name]
    call(np.int64(least or 0))
    call(least or 0)
    for bad in (True, 2.0, np.float64(2.0), "2", *([] if least is None else [least - 1, np.int64(least - 1)])):
        with pytest.raises(InvalidArgument, match=r"=.*expected .*a whole number"):
            call(bad)


def test_the_result_is_an_int() -> None:
    assert type(whole_number("n", np.uint8(7), 1)) is int
    assert type(flipout.Flipout(group=np.int64(2)).group) is int  # pyright: ignore[reportArgumentType]
    assert repr(flipout.LowRank(np.int32(2))) == "LowRank(rank=2)"  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument, match=r"^f\(n=0\): expected a size, a whole number ≥ 1, or None\.$"):
        whole_number("n", 0, 1, of="f", means="a size", more=", or None.")
