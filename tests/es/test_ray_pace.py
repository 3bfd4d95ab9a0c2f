"""A worker is slow only in comparison with the others, and per chunk."""

import time

import pytest

from flipout.es._ray_pace import WorkerPace
from flipout.es._ray_work import Worker


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_slow_is_compared_with_the_median_of_a_chunk(clock: list[float]) -> None:
    pace, worker = WorkerPace(), Worker(0, None, None, chunks=[0, 1], since=100.0)
    pace.heard()
    clock[0] = 160.0
    assert pace.silence() == 60
    assert not pace.is_slow(worker, 3.0)  # nobody has answered: there is no usual time
    for seconds in (2.0, 4.0, 60.0):  # for two chunks each
        worker.since, clock[0] = 200.0, 200.0 + seconds
        pace.heard()
        pace.note(worker)
    worker.since = 300.0
    clock[0] = 300.0 + 3 * 4.0
    assert not pace.is_slow(worker, 3.0)
    clock[0] += 0.01
    assert pace.is_slow(worker, 3.0)
    worker.chunks = [0, 1, 2, 3]  # twice the work
    assert not pace.is_slow(worker, 3.0)


def test_a_worker_hangs_if_it_takes_too_long_and_far_longer_than_usual(clock: list[float]) -> None:
    pace, worker = WorkerPace(), Worker(0, None, "call", chunks=[0], since=100.0)
    clock[0] = 106.0
    assert pace.is_hung(worker, 5.0)  # nobody has answered: the timeout alone decides
    assert not pace.is_hung(worker, 7.0)
    pace.heard()
    pace.note(worker)  # a chunk takes 6 s
    worker.since, clock[0] = 200.0, 259.0
    assert not pace.is_hung(worker, 5.0)
    clock[0] = 261.0
    assert pace.is_hung(worker, 5.0)
    assert not pace.is_hung(Worker(0, None, None, since=100.0), 5.0)  # nobody asked it
    assert not pace.is_hung(Worker(0, None, "call"), 5.0)  # it waits for a place to start


def test_a_new_worker_may_take_as_long_to_start_as_others_did(clock: list[float]) -> None:
    pace, worker = WorkerPace(), Worker(0, None, "call", hired=100.0)
    pace.heard()
    clock[0] = 106.0
    assert pace.has_no_start(5.0)
    pace.heard()
    pace.note_start(worker)  # it took 6 s
    clock[0] = 106.0 + 59.0
    assert not pace.has_no_start(5.0)
    clock[0] = 106.0 + 61.0
    assert pace.has_no_start(5.0)


def test_a_worker_may_take_as_long_to_receive_the_strategy_as_others_did_to_start(clock: list[float]) -> None:
    pace, worker = WorkerPace(), Worker(0, None, "call", since=106.0, hired=100.0)
    clock[0] = 106.0
    pace.heard()
    pace.note_start(worker)  # it took 6 s
    clock[0] = 106.0 + 59.0
    assert not pace.is_hung(worker, 5.0)
    clock[0] = 106.0 + 61.0
    assert pace.is_hung(worker, 5.0)
