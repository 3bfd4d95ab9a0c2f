"""Small models on one CPU core, where calls cost more than arithmetic: training, acting, `predict`, a step of ES.

Every variant runs 20 times in a row, so that caches and branch predictors are as warm as in a training loop.
"""

import cProfile
import pstats
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import flipout
from flipout.schemes import SchemeName

from .record import Row, interleaved, rows

NOISE = flipout.MeanField()


def mlp(width: int = 50) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(13, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
    )  # fmt: skip


def rival(width: int = 50) -> nn.Module:
    """Return the same network of bayesian-torch's flipout layers."""
    from bayesian_torch.layers import LinearFlipout

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(
                [LinearFlipout(13, width), LinearFlipout(width, width), LinearFlipout(width, 1)]
            )

        def forward(self, x: Tensor) -> Tensor:
            first, second, last = self.layers
            x = first(x, return_kl=False).relu()
            return last(second(x, return_kl=False).relu(), return_kl=False)

    return Net()


def lenet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def training(model: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], None]:
    """Return a training step without its optimiser."""

    def run() -> None:
        model(x).square().mean().backward()

    return run


def variants(make: Callable[[], nn.Module], x: Tensor) -> dict[str, Callable[[], None]]:
    """Return training steps of the plain model and of the model under two schemes."""
    perturbed = {name: flipout.perturb(make(), NOISE, scheme=name) for name in ("shared", "flipout")}
    models = {"plain": make(), **perturbed}

    def first_output(model: nn.Module) -> Callable[[Tensor], Tensor]:
        return (lambda x: model(x)[0]) if isinstance(model, nn.LSTM) else model

    return {name: training(first_output(model), x) for name, model in models.items()}


def python_calls(run: Callable[[], object]) -> float:
    """Return the number of function calls in one run, as cProfile counts them."""
    for _ in range(5):
        run()
    profile = cProfile.Profile()
    profile.enable()
    run()
    profile.disable()
    return float(pstats.Stats(profile).total_calls)  # pyright: ignore[reportAttributeAccessIssue]


def run() -> Iterator[Row]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    against: dict[str, str] = dict.fromkeys(("shared", "flipout", "flipout, sampled", "bayesian-torch"), "plain")
    cases: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
        "small MLP 13-50-50-1, batch 32": (mlp, torch.randn(32, 13)),
        "small MLP 13-50-50-1, batch 128": (mlp, torch.randn(128, 13)),
        "small MLP 13-256-256-1, batch 128": (lambda: mlp(256), torch.randn(128, 13)),
        "small LeNet-5, 64 × 28 × 28": (lenet, torch.randn(64, 1, 28, 28)),
        "small LSTM 1 × 64, (20, 32, 16)": (lambda: nn.LSTM(16, 64), torch.randn(20, 32, 16)),
        "small LSTM 1 × 64, (50, 32, 64)": (lambda: nn.LSTM(64, 64), torch.randn(50, 32, 64)),
        "small TransformerEncoder 2 × 64, (32, 20)": (encoder, torch.randn(32, 20, 64)),
    }
    for case, (make, x) in cases.items():
        runs = variants(make, x)
        if "MLP" in case:
            runs["bayesian-torch"] = training(rival(256 if "256" in case else 50), x)
        yield from rows(case, interleaved(runs, seconds=10, turns=20), against)
        if case.endswith("batch 32"):
            counted = {name: [python_calls(run)] for name, run in runs.items()}
            yield from rows(case, counted, against, what="calls")
    yield from rows("small ELBO step, MLP 13-50-50-1, batch 32", interleaved(_elbo(), seconds=10, turns=20), against)
    yield from rows("small policy 13-50-50-1, batch 8", interleaved(_acting(), seconds=10, turns=20), against)
    yield from rows("small predict, 32 samples × 200 rows", interleaved(_predict(), seconds=10, turns=20), against)
    yield from rows("small ES step, 80 members × 200 rows", interleaved(_update(), seconds=10, turns=20), against)
    torch.set_num_threads(threads)


def _elbo() -> dict[str, Callable[[], None]]:
    """Return steps on the mean squared error, and on an ELBO: the likelihood and the KL of 1000 examples."""
    from bayesian_torch.models import dnn_to_bnn

    divergence: Any = dnn_to_bnn.get_kl_loss  # annotated as returning None
    x, y, error = torch.randn(32, 13), torch.randn(32, 1), nn.functional.mse_loss
    plain, other = mlp(), rival()
    noise = flipout.MeanField(prior=flipout.bayes.Normal(0.0, 1.0))
    elbo = flipout.bayes.ELBO(flipout.perturb(mlp(), noise), "gaussian", num_data=1000)
    return {
        "plain": lambda: error(plain(x), y).backward(),
        "flipout": lambda: elbo(x, y).loss.backward(),
        "bayesian-torch": lambda: (error(other(x), y) + divergence(other) / 1000).backward(),
    }


def _acting() -> dict[str, Callable[[], object]]:
    """Return episodes of 100 steps by a policy: plain, under one draw, and with a fresh draw for every step."""
    plain, model, x = mlp(), flipout.perturb(mlp(), NOISE).eval(), torch.randn(8, 13)

    @torch.no_grad()
    def episode(policy: nn.Module) -> None:
        for _ in range(100):
            policy(x)

    def held(scheme: SchemeName) -> None:
        with flipout.using(model, scheme=scheme), flipout.hold(model):
            episode(model)

    def sampled() -> None:
        with flipout.sampling(model):
            episode(model)

    return {
        "plain": lambda: episode(plain),
        "shared": lambda: held("shared"),
        "flipout": lambda: held("flipout"),
        "flipout, sampled": sampled,
    }


def _predict() -> dict[str, Callable[[], object]]:
    """Return `predict` with 32 samples, and inference of as many rows."""
    plain, model, x, all_rows = mlp(), flipout.perturb(mlp(), NOISE), torch.randn(200, 13), torch.randn(6400, 13)
    return {
        "plain": torch.no_grad()(lambda: plain(all_rows)),
        "flipout": lambda: flipout.bayes.predict(model, x, samples=32),
    }


def _update() -> dict[str, Callable[[], object]]:
    """Return a step of an evolution strategy with 80 members, and inference of as many rows."""
    plain, x, y, all_rows = mlp(), torch.randn(200, 13), torch.randn(200, 1), torch.randn(16000, 13)

    def fitness(population: flipout.es.Population) -> Tensor:
        return -(population(x.expand(population.size, *x.shape)) - y).square().mean((1, 2))

    strategy = flipout.es.EvolutionStrategy(
        mlp(), fitness, population=80, std=0.1, optimizer=lambda p: torch.optim.Adam(p, 1e-2), seed=0
    )
    return {"plain": torch.no_grad()(lambda: plain(all_rows)), "flipout": strategy.step}
