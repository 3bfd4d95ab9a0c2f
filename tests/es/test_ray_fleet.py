"""Workers join, die and stall, and the weights still equal those of a local run bit for bit.

A worker takes seconds to start, so all tests share one fleet.
"""

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import flipout
from flipout import errors, es
from tests.es.toys import full, regression, strategy

ray: Any = pytest.importorskip("ray", reason="RayFleet needs ray: pip install 'flipout[ray]'")
pytestmark = pytest.mark.filterwarnings("default")  # Ray's own


@pytest.fixture(scope="module", autouse=True)
def loopback() -> Iterator[None]:
    """Use 127.0.0.2: Ray replaces 127.0.0.1 by an address that other machines can reach."""
    ray.init(
        "local", num_cpus=4, _node_ip_address="127.0.0.2", include_dashboard=False, log_to_driver=False,
        object_store_memory=100 * 2**20,
    )  # fmt: skip
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def shared() -> Iterator[es.RayFleet]:
    with es.RayFleet(2) as fleet:
        yield fleet


@pytest.fixture
def fleet(shared: es.RayFleet) -> es.RayFleet:
    """Two workers, with the settings of a new fleet. They may still be busy with the strategy of another test."""
    new = es.RayFleet(2)
    for name in ("workers", "lost", "patience", "timeout", "events"):
        setattr(shared, name, getattr(new, name))
    return shared


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError("ten minutes have passed")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(600)  # against a test that hangs; a busy machine takes a minute for each worker
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# On a busy machine Ray reports a death so late that the dead worker's chunks pass for those of a slow one.
PATIENT = 1e9


class Marked:
    """A fitness that leaves a file for each process and generation, and in one generation calls `once(folder)` once."""

    def __init__(self, folder: Path, generation: int = -1, once: Any = None, pause: float = 0.0) -> None:
        self.folder, self.generation, self.once, self.pause = folder, generation, once, pause

    def __call__(self, population: es.Population) -> Any:
        (self.folder / f"{population.generation} {os.getpid()}").touch()
        time.sleep(self.pause)
        if population.generation == self.generation:
            try:
                (self.folder / "once").touch(exist_ok=False)
            except FileExistsError:
                return regression(population)
            self.once(self.folder)
        return regression(population)

    def processes(self, generation: int) -> set[int]:
        return {int(path.name.split()[1]) for path in self.folder.glob(f"{generation} *")}


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dawdle(folder: Path) -> None:
    """Wait until the test allows this worker to go on."""
    while not (folder / "awake").exists():
        time.sleep(0.01)


def equal(first: es.EvolutionStrategy, second: es.EvolutionStrategy) -> bool:
    pairs = zip(first.model.state_dict().values(), second.model.state_dict().values(), strict=True)
    return first.generation == second.generation and all(torch.equal(a, b) for a, b in pairs)


def local(generations: int, **how: Any) -> es.EvolutionStrategy:
    evolution = strategy(fleet=es.Local(members=4), **how)
    evolution.run(generations)
    return evolution


def until_both(evolution: es.EvolutionStrategy, fitness: Marked) -> None:
    """Step until both workers have evaluated something in one generation."""
    while len(fitness.processes(evolution.generation - 1)) < 2:
        evolution.step()


def test_two_workers_are_local(fleet: es.RayFleet) -> None:
    """With moments, schedules, decay, mirror images and mini-batches, and under every scheme."""
    expected, evolution = full(), full()
    expected.fleet = es.Local(members=2)
    expected.run(5)
    evolution.fleet = fleet
    evolution.run(5)
    assert equal(evolution, expected)
    for scheme in ("flipout", "independent", flipout.LowRank(2)):
        another = strategy(scheme=scheme, shaping="raw", fleet=fleet)  # another strategy: all join anew
        another.run(3)
        assert equal(another, local(3, scheme=scheme, shaping="raw"))


def test_observations_are_counted_alike(fleet: es.RayFleet) -> None:
    """Workers and the main process count the same observations, though none is sent."""
    pytest.importorskip("gymnasium", reason="flipout.es.rl needs gymnasium: pip install 'flipout[rl]'")

    def policy() -> es.EvolutionStrategy:
        torch.manual_seed(0)
        model = torch.nn.Sequential(es.rl.Normalizer(4), torch.nn.Linear(4, 2))
        return strategy(es.rl.Episodes("CartPole-v1", steps=50), model, std=0.5)

    expected, evolution = policy(), policy()
    expected.run(3)
    evolution.fleet = fleet
    evolution.run(3)
    assert equal(evolution, expected)


def test_killed_in_a_generation(tmp_path: Path, fleet: es.RayFleet) -> None:
    """Other workers evaluate its chunks, and its replacement catches up."""
    fitness = Marked(tmp_path, 2, die, pause=0.02)
    fleet.patience = PATIENT
    evolution = strategy(fitness, fleet=fleet)
    with pytest.warns(
        UserWarning, match=r"generation 2: worker \d died; 1 chunk will be evaluated by another worker\. A new"
    ):
        evolution.run(4)
    until_both(evolution, fitness)
    assert sum("joins" in event for event in fleet.events) == 3
    assert all(told.missing == 0 for told in evolution.history)
    assert equal(evolution, local(evolution.generation))


def test_killed_and_dropped(tmp_path: Path, fleet: es.RayFleet) -> None:
    fleet.lost, fleet.patience = "drop", PATIENT
    evolution = strategy(Marked(tmp_path, 1, die, pause=0.02), fleet=fleet)
    with pytest.warns(UserWarning, match="1 chunk left out"):
        evolution.run(4)
    assert [told.missing for told in evolution.history] == [0, 4, 0, 0]


class Calming(list[str]):
    """Events of a fleet that gets patient once two hung workers are replaced: their successors may start slowly."""

    def __init__(self, fleet: es.RayFleet) -> None:
        super().__init__()
        self.fleet = fleet

    def append(self, event: str) -> None:
        super().append(event)
        if sum("has not answered for" in event for event in self) >= 2:
            self.fleet.timeout = 300.0


def test_all_workers_stopped(tmp_path: Path, fleet: es.RayFleet) -> None:
    """Stopped processes are replaced, and the run goes on."""
    fitness = Marked(tmp_path, pause=0.02)
    evolution = strategy(fitness, fleet=fleet)
    until_both(evolution, fitness)
    fleet.timeout, fleet.events = 2.0, Calming(fleet)
    for process in fitness.processes(evolution.generation - 1):
        os.kill(process, signal.SIGSTOP)
    with pytest.warns(UserWarning, match="has not answered for"):
        evolution.run(evolution.generation + 2)
    assert len([event for event in fleet.events if "has not answered for" in event]) >= 2
    assert equal(evolution, local(evolution.generation))


def test_a_worker_that_joins_late(tmp_path: Path, fleet: es.RayFleet) -> None:
    fitness = Marked(tmp_path, pause=0.02)
    fleet.workers = 1
    evolution = strategy(fitness, fleet=fleet)
    evolution.run(3)
    fleet.workers = 2
    until_both(evolution, fitness)
    told = [event.partition(": ")[2] for event in fleet.events if "is slow" not in event]  # on a busy machine
    assert [re.sub(r"\d+", "N", event) for event in told] == ["worker N joins", "worker N joins"]
    fleet.workers = 1
    evolution.step()
    assert len(fitness.processes(evolution.generation - 1)) == 1
    assert equal(evolution, local(evolution.generation))


def test_a_straggler(tmp_path: Path, fleet: es.RayFleet) -> None:
    """The run waits for the patience, not for the worker. Once awake, the worker catches up and takes part."""
    fitness = Marked(tmp_path, pause=0.02)
    evolution = strategy(fitness, fleet=fleet)
    until_both(evolution, fitness)
    evolution.fitness = Marked(tmp_path, evolution.generation, dawdle, pause=0.02)
    fleet.events.clear()
    evolution.step()  # returns although the worker still waits
    assert any("is slow; another worker gets 1 chunk too" in event for event in fleet.events)
    (tmp_path / "awake").touch()
    evolution.step()
    until_both(evolution, fitness)
    assert equal(evolution, local(evolution.generation))


def dawdle_and_fail(folder: Path) -> None:
    dawdle(folder)
    raise ZeroDivisionError("too late")


def test_a_straggler_that_fails_ends_nothing(tmp_path: Path, fleet: es.RayFleet) -> None:
    """Another worker has evaluated its chunk, and the run has continued."""
    fitness = Marked(tmp_path, pause=0.02)
    evolution = strategy(fitness, fleet=fleet)
    until_both(evolution, fitness)
    evolution.fitness = Marked(tmp_path, evolution.generation, dawdle_and_fail, pause=0.02)
    late = f"its answer for generation {evolution.generation} is dropped (ZeroDivisionError: too late)"
    evolution.step()
    (tmp_path / "awake").touch()
    while not any(late in event for event in fleet.events):
        evolution.step()
    assert equal(evolution, local(evolution.generation))


def test_what_was_changed_by_hand_reaches_the_workers(fleet: es.RayFleet) -> None:
    expected, evolution = local(2), strategy()
    evolution.fleet = fleet
    evolution.run(2)
    for running in (expected, evolution):
        running.optimizer.param_groups[0]["lr"] = 0.2
        with torch.no_grad():
            running.model.get_parameter("0.weight").mul_(0.5)
        running.run(4)
    assert equal(evolution, expected)


def wrong(population: es.Population) -> Any:
    raise ZeroDivisionError("by the fitness")


def test_errors_of_the_fitness(fleet: es.RayFleet) -> None:
    with pytest.raises(ZeroDivisionError, match="by the fitness"):
        strategy(wrong, fleet=fleet).step()
    with pytest.raises(errors.InvalidInput, match="expected \\(4,\\)"):
        strategy(lambda population: [1.0], fleet=fleet).step()
    lock = threading.Lock()
    with pytest.raises(errors.FleetError, match="cannot be sent to workers"):
        strategy(lambda population: lock, fleet=fleet).step()
    with pytest.raises(errors.InvalidArgument, match="nothing to evaluate with"):
        strategy(None, fleet=fleet).step()
    evolution = strategy(fleet=fleet)
    evolution.run(2)
    assert equal(evolution, local(2))


def test_no_room() -> None:
    with es.RayFleet(1, cpus=100, timeout=0.5) as fleet:
        evolution = strategy(fleet=fleet)
        with pytest.raises(errors.FleetError, match=r"No worker has started within timeout=0\.5 s\. 1 with cpus=100"):
            evolution.step()


@pytest.mark.parametrize("how", [{"workers": 0}, {"lost": "keep"}, {"patience": 0.5}, {"cpus": -1}, {"members": 0}])
def test_bad_arguments(how: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument, match="expected"):
        es.RayFleet(**{"workers": 1, **how})


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(errors.MissingExtra, match=r"pip install 'flipout\[ray\]'"):
        es.RayFleet(2)
