"""A fleet of real Ray workers in which processes are killed, stopped, slow, fail late, leave and join."""

import contextlib
import os
import random
import signal
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from flipout import es
from tests.es.toys import regression, strategy

ACTIONS = ("kill", "stop", "slow", "fail late", "leave", "join")


class Disturbed:
    """A fitness that writes down who evaluates, and does once what a file orders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, population: es.Population) -> Any:
        (self.folder / f"process {os.getpid()}").touch()
        order = next((name for name in ("slow", "fail late") if self._taken(name)), "")
        if order == "slow":
            time.sleep(1.0)
        if order == "fail late":
            while self.generation() <= population.generation:  # others evaluate this meanwhile
                time.sleep(0.05)
            raise ZeroDivisionError("too late")
        time.sleep(0.01)
        return regression(population)

    def generation(self) -> int:
        """Return the generation that the driver is in."""
        return int((self.folder / "generation").read_text() or 0)

    def _taken(self, name: str) -> bool:
        try:
            (self.folder / name).unlink()
        except FileNotFoundError:
            return False
        return True

    def processes(self) -> list[int]:
        found = [int(path.name.split()[1]) for path in self.folder.glob("process *")]
        return [process for process in found if Path(f"/proc/{process}").exists()]


def disturbed(folder: Path, generations: int, events: int, seed: int, fleet: es.RayFleet) -> dict[str, Any]:
    """Evolve with disturbances in drawn generations. Return what happened, and whether the weights are right."""
    folder.mkdir(parents=True, exist_ok=True)
    draw, fitness, happened = random.Random(seed), Disturbed(folder), Counter[str]()
    moments = Counter(draw.choices(range(1, generations), k=events))
    evolution = strategy(fitness, fleet=fleet)
    started = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while evolution.generation < generations:
            _write(folder / "generation", str(evolution.generation))
            timers = [_act(fitness, fleet, draw, happened) for _ in range(moments[evolution.generation])]
            evolution.step()
            fleet.timeout = 30.0  # for answers; the first start may take longer, and a busy machine is slow
            _write(folder / "generation", str(evolution.generation))
            for timer in filter(None, timers):
                timer.join()
    local = strategy(fleet=es.Local(members=4))
    local.run(generations)
    pairs = zip(evolution.model.state_dict().values(), local.model.state_dict().values(), strict=True)
    said = Counter(word for event in fleet.events for word in ("died", "has not answered", "dropped") if word in event)
    return {
        "generations": evolution.generation,
        "events": dict(happened),
        "workers that died": said["died"],
        "workers that hung": said["has not answered"],
        "late answers dropped": said["dropped"],
        "equal": all(torch.equal(a, b) for a, b in pairs),
        "seconds": round(time.monotonic() - started),
    }


def _act(fitness: Disturbed, fleet: es.RayFleet, draw: random.Random, happened: Counter[str]) -> threading.Timer | None:
    action, processes = draw.choice(ACTIONS), fitness.processes()
    if action in ("leave", "join"):
        fleet.workers = min(max(fleet.workers + (1 if action == "join" else -1), 1), 3)
    elif action in ("slow", "fail late"):
        (fitness.folder / action).touch()
    elif processes:
        what = signal.SIGKILL if action == "kill" else signal.SIGSTOP
        timer = threading.Timer(draw.uniform(0, 0.1), _send, (draw.choice(processes), what))
        timer.start()
        happened[action] += 1
        return timer
    happened[action] += 1
    return None


def _send(process: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, what)


def _write(path: Path, text: str) -> None:
    fresh = path.with_name("fresh")
    fresh.write_text(text)
    fresh.replace(path)
