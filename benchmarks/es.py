"""A population's forward pass against inference of the mean network; on a GPU, updates too."""

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

import flipout
from flipout.es import EvolutionStrategy
from flipout.schemes import SchemeName

from .es_rivals import RIVALS, STD
from .record import Row, interleaved, rows

SCHEMES: dict[str, SchemeName | flipout.Scheme] = {
    "flipout": "flipout",
    "low_rank(1)": flipout.LowRank(1),
    "rank_one": "rank_one",
    "independent": "independent",
}
SIZES, SAMPLES, GROUP = (784, 256, 10), 125, 40


def run() -> Iterator[Row]:
    if torch.cuda.is_available():
        from .es_gpu import run as on_gpu

        yield from on_gpu()
        return
    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(cores)})
    try:
        for members in (40, 1000):
            x = torch.randn(members, SAMPLES, SIZES[0])
            yield from _compare(f"{members} × {SAMPLES}, own inputs", x, x)
            yield from _compare(f"{members} × {SAMPLES}, one batch", x, x[0].expand_as(x))
    finally:
        torch.set_num_threads(threads)
        os.sched_setaffinity(0, cores)


def mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def strategy(model: nn.Module, members: int, group: int, scheme: Any, **options) -> EvolutionStrategy:
    options.setdefault("optimizer", lambda parameters: torch.optim.Adam(parameters, 1e-2))
    return EvolutionStrategy(
        model, options.pop("fitness", None), population=members, group=group, std=STD, scheme=scheme, **options
    )


@torch.no_grad()
def _compare(inputs: str, distinct: Tensor, x: Tensor) -> Iterator[Row]:
    """Measure inputs x of (members, samples, features) against inference of as many distinct samples."""
    members, plain = len(x), mlp(*SIZES)
    runs: dict[str, Callable[[], object]] = {"plain": lambda: plain(distinct.flatten(0, 1))}
    for name, scheme in SCHEMES.items():
        # The weights of a thousand independent members do not fit into memory at once.
        most = GROUP if scheme == "independent" else None
        runs[name] = forward(strategy(mlp(*SIZES), members, GROUP, scheme), x, most)
    for name, rival in RIVALS.items():
        try:
            runs[name] = rival(mlp(*SIZES), members, x)
        except ImportError as error:
            print(f"{name} is left out: {error}")
    least, seconds = (15, 20.0) if members <= GROUP else (5, 0.0)
    measured = interleaved(runs, seconds=seconds, least=least)
    yield from rows(f"es mlp 784-256-10, {inputs}", measured, dict.fromkeys(list(runs)[1:], "plain"))


def forward(search: EvolutionStrategy, x: Tensor, most: int | None) -> Callable[[], object]:
    """Return a forward pass that draws a new generation each time. A batch that all members share is expanded."""
    batched = x.stride(0) != 0

    def run() -> None:
        search.generation += 1
        for part in search.ask(most):
            part(x[part.first :][: part.size], batched=batched)

    return run
