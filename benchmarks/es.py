"""A population's forward pass, and on a GPU the whole update, against plain inference of the mean network."""

import os
from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn

import flipout
from flipout.es import EvolutionStrategy

from .es_rivals import RIVALS, STD
from .record import Row, interleaved, rows

SCHEMES = {"flipout": flipout.Flipout(), "low_rank(1)": flipout.LowRank(1), "independent": flipout.Independent()}
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


def strategy(model: nn.Module, members: int, group: int, scheme: flipout.Scheme, **options) -> EvolutionStrategy:
    options.setdefault("optimizer", lambda parameters: torch.optim.Adam(parameters, 1e-2))
    return EvolutionStrategy(
        model, options.pop("fitness", None), population=members, group=group, std=STD, scheme=scheme, **options
    )


@torch.no_grad()
def _compare(what: str, distinct: Tensor, x: Tensor) -> Iterator[Row]:
    """`x` (members, samples, features); plain inference has distinct samples in either case."""
    members, plain = len(x), mlp(*SIZES)
    runs: dict[str, Callable[[], object]] = {"plain": lambda: plain(distinct.flatten(0, 1))}
    for name, scheme in SCHEMES.items():
        own = scheme == "independent"  # of a thousand members' own weights only some fit into memory
        runs[name] = _forward(strategy(mlp(*SIZES), members, GROUP, scheme), x, GROUP if own else None)
    for name, rival in RIVALS.items():
        try:
            runs[name] = rival(mlp(*SIZES), members, x)
        except ImportError as error:
            print(f"{name} is left out: {error}")
    least, seconds = (15, 20.0) if members <= GROUP else (5, 0.0)
    measured = interleaved(runs, seconds=seconds, least=least)
    yield from rows(f"es mlp 784-256-10, {what}", measured, dict.fromkeys(list(runs)[1:], "plain"))


def _forward(search: EvolutionStrategy, x: Tensor, most: int | None) -> Callable[[], object]:
    """Each call is of a new generation, whose noise is drawn anew. One batch is expanded, as the docs say."""
    batched = x.stride(0) != 0

    def run() -> None:
        search.generation += 1
        for part in search.ask(most):
            part(x[part.first :][: part.size], batched=batched)

    return run
