"""A stand-in for Ray in this process. Actors answer in order, and only when a test allows it.

Its clock is its own: an answer and a wait in vain take a millisecond each, however busy the machine is.
"""

import time
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from flipout.es import _ray_dispatch, _ray_pace, _ray_pool
from flipout.es._ray_pace import WorkerPace


class ActorError(Exception):
    """An actor has died."""


@dataclass(eq=False)
class Call:
    actor: "Actor"
    name: str
    arguments: tuple[Any, ...]
    outcome: Callable[[], Any] | None = None

    @property
    def generation(self) -> int:
        """Return the generation that a call of `evaluate` is for, or −1 for other calls."""
        return self.arguments[-3] if self.name == "evaluate" else -1


@dataclass(eq=False)
class Actor:
    number: int
    copy: Any
    queue: deque[Call] = field(default_factory=deque)

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self.called(name, arguments))

    def called(self, name: str, arguments: tuple[Any, ...]) -> Call:
        self.queue.append(Call(self, name, arguments))
        return self.queue[-1]


class FakeRay:
    """`held` tells which calls wait. `answering` is the number of the actor that answers now, `now` the time."""

    exceptions = SimpleNamespace(
        RayActorError=ActorError, ObjectLostError=ActorError, NodeDiedError=ActorError, WorkerCrashedError=ActorError
    )

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.held: Callable[[Call], bool] = lambda call: False
        self.answering = -1
        self.idle = 0
        self.now = time.monotonic()  # a worker notes when it was hired, by the real clock
        self.session = 0  # its number

    def is_initialized(self) -> bool:
        return True

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: str(self.session))

    def remote(self, **how: Any) -> Any:
        return lambda kind: SimpleNamespace(remote=lambda: self._hired(kind()))

    def put(self, value: Any) -> Any:
        return value

    def kill(self, actor: Actor) -> None:
        pass

    def wait(self, calls: list[Call], timeout: float) -> tuple[list[Call], list[Call]]:
        ready = [call for call in calls if not self.held(call)]
        self.idle = 0 if ready else self.idle + 1
        assert self.idle < 5000, "nobody answers"
        self.now += 0 if ready else 0.001
        return ready, [call for call in calls if call not in ready]

    def get(self, call: Call) -> Any:
        """Answer a call, after the earlier calls of its actor."""
        while call.outcome is None:
            asked = call.actor.queue.popleft()
            self.answering = call.actor.number
            asked.outcome = _outcome(call.actor.copy, asked)
            self.now += 0.001
        return call.outcome()

    def _hired(self, copy: Any) -> Actor:
        self.actors.append(Actor(len(self.actors), copy))
        return self.actors[-1]


def _outcome(copy: Any, call: Call) -> Callable[[], Any]:
    def failed(error: Exception) -> Any:
        raise error

    try:
        value = getattr(copy, call.name)(*deepcopy(call.arguments))  # as through pickle
    except Exception as error:
        return lambda error=error: failed(error)
    return lambda: value


def installed(patch: pytest.MonkeyPatch) -> FakeRay:
    """Replace Ray for all fleets made from now on, and never wait."""
    fake = FakeRay()
    patch.setattr(_ray_pool, "import_ray", lambda: fake)
    patch.setattr(WorkerPace, "tick", 0.0)
    for module in (_ray_dispatch, _ray_pace):
        patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: fake.now))
    return fake
