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
        self._session: str | None = None  # of Ray, that the actors belong to
        self._hired = 0  # workers so far, dead ones included

    def grow(self, count: int, address: str | None, cpus: float, gpus: float) -> None:
        """Start actors until there are `count`."""
        if len(self.workers) >= count:
            return
        self._start_ray(address, math.ceil(count * cpus))
        self._session = self._present_session()
        options = {"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": "SPREAD"}
        actors = self.ray.remote(**options)(StrategyCopy)
        for _ in range(count - len(self.workers)):
            actor = actors.remote()
            self.workers.append(Worker(self._hired, actor, actor.up.remote()))
            self._hired += 1

    def forget_ended(self) -> bool:
        """Forget the actors if their session of Ray has ended, as after `ray.shutdown()`. Return True if it has."""
        has_ended = bool(self.workers) and self._present_session() != self._session
        if has_ended:
            self.workers, self._has_started_ray = [], False
        return has_ended

    def remove(self, worker: Worker) -> None:
        """End one actor."""
        self.workers.remove(worker)
        self.ray.kill(worker.actor)

    def answered(self, timeout: float) -> list[Worker]:
        """Wait for an answer, `timeout` seconds at most, and return the workers that have one."""
        calls = {worker.call: worker for worker in self.workers if worker.call is not None}
        ready, _ = self.ray.wait(list(calls), timeout=timeout)
        return [calls[call] for call in ready]

    def has_answered(self, worker: Worker) -> bool:
        """Return True if the worker's answer is there."""
        return bool(self.ray.wait([worker.call], timeout=0)[0])

    def close(self) -> None:
        """End all actors, and Ray if this pool started it."""
        if self.ray.is_initialized() and not self.forget_ended():
            for worker in self.workers:
                self.ray.kill(worker.actor)
            if self._has_started_ray:
                self.ray.shutdown()
        self.workers, self._has_started_ray = [], False

    def _present_session(self) -> str | None:
        """Return what tells this session of Ray from others, or None if there is none."""
        return self.ray.get_runtime_context().get_node_id() if self.ray.is_initialized() else None

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
