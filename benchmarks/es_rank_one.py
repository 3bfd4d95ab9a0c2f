"""A population under rank-one flips against inference, on one CPU core, every member with its own inputs."""

import os
import time
from collections.abc import Callable, Iterator

import torch

from flipout.ops import onednn

from .es import GROUP, SAMPLES, SCHEMES, SIZES, forward, mlp, strategy
from .record import Row, interleaved, rows

VARIANTS = ("rank_one", "low_rank(1)", "flipout")


def run() -> Iterator[Row]:
    threads, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(cores)})
    try:
        for members in (40, 1000):
            yield from _compare(members)
    finally:
        torch.set_num_threads(threads)
        os.sched_setaffinity(0, cores)


@torch.no_grad()
def _compare(members: int) -> Iterator[Row]:
    """Measure against inference by torch, and by oneDNN, which serves the products of a population here."""
    x, plain = torch.randn(members, SAMPLES, SIZES[0]), mlp(*SIZES)
    runs: dict[str, Callable[[], object]] = {
        "plain": lambda: plain(x.flatten(0, 1)),
        "plain by oneDNN": lambda: _by_onednn(plain, x.flatten(0, 1)),
    }
    for name in VARIANTS:
        runs[name] = forward(strategy(mlp(*SIZES), members, GROUP, SCHEMES[name]), x, None)
    measured = interleaved(
        runs, seconds=10.0 if members <= GROUP else 0.0, least=15 if members <= GROUP else 7, clock=time.process_time
    )
    case = f"es rank_one mlp 784-256-10, {members} × {SAMPLES}, own inputs, processor time"
    yield from rows(case, measured, dict.fromkeys(list(runs)[1:], "plain"))


def _by_onednn(network: torch.nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    for layer in network:
        x = onednn.linear(x, layer.weight, layer.bias) if isinstance(layer, torch.nn.Linear) else layer(x)
    return x
