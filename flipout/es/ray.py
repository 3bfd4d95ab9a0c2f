"""A fleet of Ray actors, each with a copy of the strategy that fitness numbers alone keep equal."""

import math
import os
import time
import warnings
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._arguments import whole_number
from .._extras import import_extra
from ..errors import FleetError, InvalidArgument
from .fleet import Fleet, Local

if TYPE_CHECKING:
    from .crew import Work, Worker
    from .strategy import EvolutionStrategy

LOST = {"rerun": "evaluated by others", "drop": "left out"}
_TICK = 0.1  # seconds between looks at who is slow


class RayFleet(Fleet):
    """`workers` actors of `cpus` and `gpus` each, on this machine or on the cluster at `address`; where Ray is
    initialised already, there.

    A part is `members` members, by default those of one ΔŴ, whatever the number of workers: that changes nothing, and
    may be set at any time. Who dies is replaced, and who comes gets the current weights. What the dead had is evaluated
    by others, or with lost='drop' left out of the sum. What takes `patience` times as long as usual is given to a
    second worker, too, and the first answer counts. An answer or an error that comes after that, or to an earlier
    question, is dropped. `events` tells of all that. Where no worker has come up for `timeout` seconds, it is an error.
    """

    def __init__(
        self,
        workers: int,
        *,
        address: str | None = None,
        cpus: float = 1,
        gpus: float = 0,
        members: int | None = None,
        memory: int = 2**28,
        lost: str = "rerun",
        patience: float = 3.0,
        timeout: float = 300.0,
    ) -> None:
        workers = whole_number("workers", workers, 1)
        if lost not in LOST:
            raise InvalidArgument(f"RayFleet(lost={lost!r}): expected 'rerun' or 'drop'.")
        for name, value in {"cpus": cpus, "gpus": gpus, "patience": patience, "timeout": timeout}.items():
            least = 1 if name == "patience" else 0
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not value >= least:
                raise InvalidArgument(f"RayFleet({name}={value!r}): expected a number ≥ {least}.")
        self.workers, self.address, self.cpus, self.gpus = workers, address, cpus, gpus
        self.lost, self.patience, self.timeout = lost, patience, timeout
        self.events: list[str] = []
        self._parts = Local(members, memory)
        self._ray = _ray()
        self._started = False  # Ray, by this fleet
        self._crew: list[Worker] = []
        self._hired = 0  # of all times
        self._fallen = 0  # since somebody last answered
        self._heard = 0.0  # when somebody did
        self._usual: deque[float] = deque(maxlen=101)  # seconds for a part
        self._stamp: Any = None  # of the strategy whose copies the workers have
        self._edition = 0  # its number: a new one for another strategy, one that was changed by hand, or after an error
        self._asked: tuple[EvolutionStrategy, int] | None = None  # what was evaluated last, until it is told
        self._ticket: Any = None  # for those who join in this generation

    def __enter__(self) -> "RayFleet":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Dismiss the workers, and stop Ray if this fleet started it."""
        if self._ray.is_initialized():
            for worker in self._crew:
                self._ray.kill(worker.actor)
            if self._started:
                self._ray.shutdown()
        self._crew, self._started, self._stamp, self._asked, self._ticket = [], False, None, None, None

    def most(self, strategy: "EvolutionStrategy") -> int:
        """Members of a part."""
        most = self._parts.most(strategy)
        return most if self._parts.members is not None else min(most, strategy.settings.shared)

    def evaluate(self, strategy: "EvolutionStrategy") -> Tensor:
        from . import crew

        if strategy.fitness is None:
            raise InvalidArgument("fitness=None: workers have nothing to evaluate with. Give one, or use ask and tell.")
        if self._stamp != crew.stamp(strategy):
            self._ticket, self._edition = None, self._edition + 1
        self._stamp = None  # an error on the way leaves it so: what was asked until then counts no more
        sizes = [part.size for part in strategy.ask(self.most(strategy))]
        work = crew.Work(deque(range(len(sizes))), self._edition, strategy.generation)
        self._heard = time.monotonic()
        while len(work.made) < len(sizes):
            self._muster(work)
            for worker in self._crew:
                if worker.call is None:
                    self._occupy(worker, strategy, work)
            calls = {worker.call: worker for worker in self._crew if worker.call is not None}
            ready, _ = self._ray.wait(list(calls), timeout=_TICK)
            for call in ready:
                self._hear(calls[call], strategy, work)
            if not any(map(self._joined, self._crew)) and time.monotonic() - self._heard > self.timeout:
                raise FleetError(
                    f"No worker has come up within timeout={self.timeout:g} s. {self.workers} with cpus={self.cpus:g}, "
                    f"gpus={self.gpus:g} are asked for; Ray has {self._ray.cluster_resources()}."
                )
        self._stamp, self._asked = crew.stamp(strategy), (strategy, strategy.generation)
        made = (work.made[i] or [math.nan] * size for i, size in enumerate(sizes))
        return torch.tensor([number for part in made for number in part], dtype=torch.float64)

    def follow(self, strategy: "EvolutionStrategy", fitness: Tensor) -> None:
        from . import crew

        asked, self._asked, self._ticket = self._asked, None, None
        if asked != (strategy, strategy.generation - 1):
            self._stamp = None  # told by hand: the copies may be of another strategy, or of other weights
            return
        for worker in self._crew:
            if self._joined(worker):
                worker.actor.tell.remote(worker.edition, strategy.generation - 1, fitness.numpy())
        self._stamp = crew.stamp(strategy)

    def _muster(self, work: "Work") -> None:
        """As many workers as there shall be."""
        from . import crew

        if len(self._crew) < self.workers:
            self._start()
            how = {"num_cpus": self.cpus, "num_gpus": self.gpus, "scheduling_strategy": "SPREAD"}
            copies = self._ray.remote(**how)(crew.Copy)
            for _ in range(self.workers - len(self._crew)):
                actor = copies.remote()
                self._crew.append(crew.Worker(self._hired, actor, actor.up.remote()))
                self._hired += 1
        for worker in self._crew[self.workers :]:
            work.take_back(worker)
            self._ray.kill(worker.actor)
        del self._crew[self.workers :]

    def _start(self) -> None:
        if not self._ray.is_initialized():
            how: dict[str, Any] = {"address": self.address}
            if self.address is None:
                enough = max(os.cpu_count() or 1, math.ceil(self.workers * self.cpus))
                how = {"address": "local", "num_cpus": enough, "include_dashboard": False}
            self._ray.init(**how)
            self._started = True

    def _occupy(self, worker: "Worker", strategy: "EvolutionStrategy", work: "Work") -> None:
        """The weights for who has none; then parts; then those of who is slow."""
        if not self._joined(worker):
            place = "cuda" if self.gpus else "cpu", max(int(self.cpus), 1)
            worker.call = worker.actor.join.remote(self._edition, self._ticket_of(strategy), *place)
            worker.edition, worker.parts, worker.work = self._edition, [], None
            self.events.append(f"generation {strategy.generation}: worker {worker.number} joins")
            return
        parts = work.take(len(self._crew)) or self._slow_parts(work)
        if parts:
            worker.parts, worker.work, worker.since = parts, work, time.monotonic()
            worker.call = worker.actor.evaluate.remote(work.edition, work.generation, parts, self.most(strategy))

    def _joined(self, worker: "Worker") -> bool:
        """Whether it is sent what this edition of the strategy is told."""
        return worker.edition == self._edition

    def _slow_parts(self, work: "Work") -> list[int]:
        for worker in self._crew if self._usual else ():
            usual = max(median(self._usual) * len(worker.parts), _TICK)
            if worker.call is not None and time.monotonic() - worker.since > self.patience * usual:
                parts = work.repeat(worker)
                if parts:
                    self.events.append(f"worker {worker.number} is slow; {_count(parts)} given to another one, too")
                    return parts
        return []

    def _hear(self, worker: "Worker", strategy: "EvolutionStrategy", work: "Work") -> None:
        """What a call came to. An answer or error counts only for what is being asked now."""
        call, worker.call = worker.call, None
        is_late = self._is_late(worker, work)
        gone = self._ray.exceptions
        try:
            answer = self._ray.get(call)
        except (gone.RayActorError, gone.ObjectLostError, gone.NodeDiedError, gone.WorkerCrashedError) as error:
            self._bury(worker, strategy, work, error)
            return
        except Exception as error:
            if is_late:
                self._drop(worker, strategy, error)
                return
            if worker.parts:
                raise  # what the fitness itself raised
            worker.edition = None
            raise FleetError(
                f"Worker {worker.number} cannot make a copy of the strategy: {error}\nWhat the model and the fitness "
                "need must be importable where the workers are, and on a GPU only with gpus=1."
            ) from error
        self._heard = time.monotonic()
        if is_late:
            self._drop(worker, strategy)
            return
        if worker.parts and answer is None:
            worker.edition = None
            work.take_back(worker)
        elif worker.parts:
            self._fallen = 0
            self._usual.append((self._heard - worker.since) / len(worker.parts))
            for i, fitness in zip(worker.parts, answer, strict=True):
                work.made.setdefault(i, fitness)
        worker.parts, worker.work = [], None

    def _is_late(self, worker: "Worker", work: "Work") -> bool:
        """Whether a worker is at something that nobody asks any longer: another edition, another evaluation, or parts
        that others have answered meanwhile."""
        if worker.parts:
            return worker.work is not work or all(i in work.made for i in worker.parts)
        return worker.edition is not None and not self._joined(worker)

    def _drop(self, worker: "Worker", strategy: "EvolutionStrategy", error: Exception | None = None) -> None:
        what = "to an earlier question"
        if worker.work is not None and worker.work.edition == self._edition:
            what = f"of generation {worker.work.generation}"
        cause = getattr(error, "cause", None) or error  # Ray's own error quotes the traceback of the worker
        why = "" if cause is None else f" ({type(cause).__name__}: {cause})"
        self.events.append(
            f"generation {strategy.generation}: worker {worker.number} is slow; its answer {what} is dropped{why}"
        )
        worker.parts, worker.work = [], None

    def _bury(self, worker: "Worker", strategy: "EvolutionStrategy", work: "Work", error: Exception) -> None:
        self._crew.remove(worker)
        self._ray.kill(worker.actor)
        self._fallen += 1
        lost = work.take_back(worker)
        for i in lost if self.lost == "drop" else ():
            work.queue.remove(i)
            work.made[i] = None
        what = f"generation {strategy.generation}: worker {worker.number} is gone; {_count(lost)} {LOST[self.lost]}"
        self.events.append(what)
        warnings.warn(f"{what}. A new one is asked for.", stacklevel=5)
        if self._fallen > 2 * self.workers + 2:
            raise FleetError(
                f"Generation {strategy.generation}: {self._fallen} workers have died one after another, and none "
                "answered. Use fleet=Local() to see what kills them, or fewer members=… to give each more memory."
            ) from error

    def _ticket_of(self, strategy: "EvolutionStrategy") -> Any:
        from . import crew

        if self._ticket is None:
            try:
                self._ticket = self._ray.put(crew.ticket(strategy))
            except Exception as error:
                raise FleetError(
                    f"The strategy cannot be sent to workers: {error}\nThe model, the fitness, and the functions given "
                    "for optimizer, schedule, std and shaping must be such as pickle can copy: open files, locks and "
                    "environments where they are first used."
                ) from error
        return self._ticket


def _count(parts: list[int]) -> str:
    return f"{len(parts)} part{'' if len(parts) == 1 else 's'}"


def _ray() -> Any:
    import_extra("ray.exceptions", "RayFleet", "ray")
    return import_extra("ray", "RayFleet", "ray")
