"""The pool of Ray actors that a fleet works with."""

import math
import os
from typing import Any

from .._extras import import_extra as import_extra
from ._ray_work import Worker
from ._ray_worker import StrategyCopy


class WorkerPool:
    """Starts, ends and listens to the actors."""

    def __init__(self) -> None:
        self.ray = import_ray()
        self.workers: list[Worker] = []
        self._has_started_ray = False
        self._hired = 0  # workers so far, dead ones included

    def grow(self, count: int, address: str | None, cpus: float, gpus: float) -> None:
        """Start actors until there are `count`."""
        if len(self.workers) >= count:
            return
        self._start_ray(address, math.ceil(count * cpus))
        options = {"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": "SPREAD"}
        actors = self.ray.remote(**options)(StrategyCopy)
        for _ in range(count - len(self.workers)):
            actor = actors.remote()
            self.workers.append(Worker(self._hired, actor, actor.up.remote()))
            self._hired += 1

    def remove(self, worker: Worker) -> None:
        """End one actor."""
        self.workers.remove(worker)
        self.ray.kill(worker.actor)

    def answered(self, timeout: float) -> list[Worker]:
        """Wait for an answer, `timeout` seconds at most, and return the workers that have one."""
        calls = {worker.call: worker for worker in self.workers if worker.call is not None}
        ready, _ = self.ray.wait(list(calls), timeout=timeout)
        return [calls[call] for call in ready]

    def close(self) -> None:
        """End all actors, and Ray if this pool started it."""
        if self.ray.is_initialized():
            for worker in self.workers:
                self.ray.kill(worker.actor)
            if self._has_started_ray:
                self.ray.shutdown()
        self.workers, self._has_started_ray = [], False

    def _start_ray(self, address: str | None, cpus: int) -> None:
        if self.ray.is_initialized():
            return
        options: dict[str, Any] = {"address": address}
        if address is None:
            options = {"address": "local", "num_cpus": max(os.cpu_count() or 1, cpus), "include_dashboard": False}
        self.ray.init(**options)
        self._has_started_ray = True


def import_ray() -> Any:
    import_extra("ray.exceptions", "RayFleet", "ray")
    return import_extra("ray", "RayFleet", "ray")
