"""Bytes that a fleet sends to each worker in a generation and receives from it, counted as they are pickled.

Ray is replaced by a stand-in in this process, which pickles every call and every answer. What Ray adds to a call, its
own description of the task, is not counted.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from flipout.es import EvolutionStrategy, Population, RayFleet
from flipout.es import _ray_pool as ray_pool

from .record import Row, rows

MEMBERS, CHUNK, WORKERS = 4096, 16, (1, 8, 64, 1024)
WIDTHS = (4, 64)  # of two models; their messages have to be equal


def run() -> Iterator[Row]:
    for workers in WORKERS:
        counted = [messages(workers, width) for width in (WIDTHS if workers < 64 else WIDTHS[:1])]
        assert all(other == counted[0] for other in counted), counted
        case = f"es traffic, {MEMBERS} members, {workers} workers"
        yield from rows(case, {name: [float(count)] for name, count in counted[0].items()}, {}, what="bytes")


def messages(workers: int, width: int, members: int = MEMBERS) -> dict[str, float]:
    """Return the mean bytes of a worker in the second generation, when all have joined."""
    ray = CountingRay()
    with patch.object(ray_pool, "import_ray", lambda: ray), RayFleet(workers, members=CHUNK) as fleet:
        strategy = EvolutionStrategy(
            nn.Linear(width, width),
            fitness,
            population=members,
            std=0.1,
            scheme="rank_one",
            fleet=fleet,
            optimizer=optimizer,
        )
        strategy.step()
        ray.sent = ray.received = 0
        strategy.step()
    return {
        "sent to a worker": round(ray.sent / workers, 1),
        "received from a worker": round(ray.received / workers, 1),
    }


def fitness(population: Population) -> torch.Tensor:
    """Numbers of every size, as fitness has them."""
    return torch.rand(population.size, dtype=torch.float64, generator=population.generator())


def optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.1)


class CountingRay:
    """Actors in this process. Calls and answers are pickled and counted; weights travel only by `put`."""

    exceptions = SimpleNamespace(
        **dict.fromkeys(("RayActorError", "ObjectLostError", "NodeDiedError", "WorkerCrashedError"), ())
    )

    def __init__(self) -> None:
        self.sent = self.received = 0

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "here")

    def remote(self, **how: Any) -> Any:
        return lambda kind: SimpleNamespace(remote=lambda: _Actor(kind(), self))

    def put(self, value: Any) -> Any:
        return lambda: value  # a reference; unlike its value, it is small

    def kill(self, actor: Any) -> None:
        pass

    def wait(self, calls: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return calls, []

    def get(self, call: Any) -> Any:
        return call.answer


@dataclass(eq=False)
class _Answered:
    answer: Any


class _Actor:
    def __init__(self, copy: Any, ray: CountingRay) -> None:
        self.copy, self.ray = copy, ray

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self._called(name, arguments))

    def _called(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "join":
            edition, reference, *place = arguments
            self.copy.join(edition, pickle.loads(pickle.dumps(reference())), *place)
            return _Answered(None)
        content = pickle.dumps(arguments, pickle.HIGHEST_PROTOCOL)
        answer = getattr(self.copy, name)(*pickle.loads(content))
        self.ray.sent += len(content)
        self.ray.received += len(pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)) if answer is not None else 0
        return _Answered(answer)
