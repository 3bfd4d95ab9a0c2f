"""A population of 784-2048-2048-10 in bf16 on one GPU: 5,000 members with one input each, forward and updates."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

import flipout
from flipout.es import EvolutionStrategy, Local, Population
from flipout.schemes import SchemeName

from .es import mlp, strategy
from .gpu import replayed, timed
from .record import Row, interleaved, rows

SIZES, MEMBERS, CALLS = (784, 2048, 2048, 10), 5000, 20
VARIANTS = {
    "flipout group 40": ("flipout", 40),
    "flipout one base": ("flipout", MEMBERS),
    "low_rank(1)": (flipout.LowRank(1), 40),
    "rank_one": (flipout.RankOne(), 40),
}


def run() -> Iterator[Row]:
    case, device = f"es fc 784-2048-2048-10, {MEMBERS} × 1", "cuda"
    x = torch.randn(MEMBERS, SIZES[0], device=device, dtype=torch.bfloat16)
    y = torch.randint(SIZES[-1], (MEMBERS,), device=device)
    searches = {name: _search(scheme, group, x, y) for name, (scheme, group) in VARIANTS.items()}
    plain = mlp(*SIZES).to(x)
    with torch.no_grad():
        forwards = {"plain": lambda: plain(x), **{name: _forward(search, x) for name, search in searches.items()}}
        against = dict.fromkeys(VARIANTS, "plain")
        yield from rows(f"{case} forward uncaptured", _measured(forwards), against, dtype="bfloat16")
        graphs = {name: replayed(forward) for name, forward in forwards.items()}
        yield from rows(f"{case} forward captured", _measured(graphs), against, dtype="bfloat16")
        for graph in graphs.values():
            graph.close()
    fitness = torch.randn(MEMBERS)
    for part, step in (("update", lambda search: search.step()), ("tell", lambda search: search.tell(fitness))):
        steps = {name: timed(lambda search=search, step=step: step(search)) for name, search in searches.items()}
        yield from rows(f"{case} {part}", interleaved(steps, seconds=3), {}, dtype="bfloat16")


def _search(scheme: SchemeName | flipout.Scheme, group: int, x: Tensor, y: Tensor) -> EvolutionStrategy:
    def fitness(population: Population) -> Tensor:
        return -F.cross_entropy(population(x).float(), y, reduction="none")

    model, fleet = mlp(*SIZES).to(x), Local(members=MEMBERS)
    return strategy(model, MEMBERS, group, scheme, fitness=fitness, fleet=fleet, optimizer=_adam)


def _adam(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, 1e-2, fused=True)


def _forward(search: EvolutionStrategy, x: Tensor) -> Callable[[], object]:
    (population,) = search.ask()
    return lambda: population(x)


def _measured(runs: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Return the milliseconds of one call; CALLS are launched before the device is waited for."""

    def several(run: Callable[[], object]) -> Callable[[], object]:
        return timed(lambda: [run() for _ in range(CALLS)])

    measured = interleaved({name: several(run) for name, run in runs.items()}, seconds=3)
    return {name: [value / CALLS for value in values] for name, values in measured.items()}
