"""The pool starts as many actors as are missing, and ends Ray only if it started it."""

from types import SimpleNamespace
from typing import Any

import pytest

from flipout.es import _ray_pool
from flipout.es._ray_pool import WorkerPool


class FakeRay:
    """Notes what it is asked for."""

    def __init__(self, *, is_running: bool) -> None:
        self.is_running = is_running
        self.session = "first"
        self.done: list[Any] = []

    def is_initialized(self) -> bool:
        return self.is_running

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: self.session)

    def init(self, **options: Any) -> None:
        self.is_running = True
        self.done.append(("init", options["address"]))

    def shutdown(self) -> None:
        self.done.append("shutdown")

    def kill(self, actor: Any) -> None:
        self.done.append(("kill", actor))

    def remote(self, **options: Any) -> Any:
        return lambda kind: FakeActors()

    def wait(self, calls: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return calls[1:2], calls[:1]


class FakeActors:
    def remote(self) -> Any:
        return FakeActor()


class FakeActor:
    def __init__(self) -> None:
        self.up = self

    def remote(self) -> object:
        return object()


@pytest.mark.parametrize("is_running", [False, True])
def test_it_grows_and_closes(is_running: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(is_running=is_running)
    monkeypatch.setattr(_ray_pool, "import_ray", lambda: ray)
    pool = WorkerPool()
    pool.grow(2, None, 1.0, 0.0)
    pool.grow(3, None, 1.0, 0.0)
    pool.grow(1, None, 1.0, 0.0)
    assert [worker.number for worker in pool.workers] == [0, 1, 2]
    assert pool.answered(1.0) == [pool.workers[1]]
    gone = pool.workers[1]
    pool.remove(gone)
    pool.grow(3, None, 1.0, 0.0)
    assert [worker.number for worker in pool.workers] == [0, 2, 3]  # a number is never used again
    actors = [worker.actor for worker in pool.workers]
    pool.close()
    started = [] if is_running else [("init", "local")]
    ended = [] if is_running else ["shutdown"]
    assert ray.done == [*started, ("kill", gone.actor), *(("kill", actor) for actor in actors), *ended]
    assert pool.workers == []


@pytest.mark.parametrize("has_another", [False, True])
def test_actors_of_an_ended_session_are_forgotten(has_another: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray refuses to kill them. Another session may have begun, which the pool must not end."""
    ray = FakeRay(is_running=False)
    monkeypatch.setattr(_ray_pool, "import_ray", lambda: ray)
    pool = WorkerPool()
    assert not pool.forget_ended()
    pool.grow(2, None, 1.0, 0.0)
    assert not pool.forget_ended()
    ray.session, ray.is_running, ray.done = "second", has_another, []
    if has_another:
        pool.close()
        assert ray.done == []
    else:
        assert pool.forget_ended()
        pool.grow(1, None, 1.0, 0.0)
        assert [worker.number for worker in pool.workers] == [2]
        assert ray.done == [("init", "local")]
