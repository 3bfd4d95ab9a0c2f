"""Processes that are killed at drawn moments and started again until they finish. What they leave must be undisturbed.

A kill is SIGKILL: the process has no chance to tidy up.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from flipout.experiments.registry import EXPERIMENTS
from tests.es.toys import full
from tests.experiments.toy_experiment import TOY, ToyConfig, content
from tests.scaling.restarted import EPOCHS
from tests.scaling.torchrun import launch, results

ROOT = Path(__file__).parents[2]
GENERATIONS = 40


@dataclass
class Kills:
    """How many processes were killed, and how many of the outcomes differ from those of undisturbed ones."""

    kills: int = 0
    outcomes: int = 0
    differ: int = 0

    def add(self, kills: int, differs: bool) -> None:
        self.kills, self.outcomes, self.differ = self.kills + kills, self.outcomes + 1, self.differ + differs


def until_finished(work: Callable[[], object], draw: random.Random, longest: float, most: int) -> int:
    """Do the work in forked processes, of which each but the last is killed at a drawn moment. Return the kills."""
    kills = 0
    while True:
        child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                work()
                os._exit(0)
            os._exit(1)
        if kills < most:
            time.sleep(draw.uniform(0, longest))
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            return kills
        if status != -signal.SIGKILL:
            raise AssertionError(f"a process that was started again ended with {status}")
        kills += 1


def timed(work: Callable[[Path], object], folder: Path) -> float:
    """Return the seconds of the faster of two undisturbed processes. The first leaves the folder "whole"."""
    taken = []
    for name in ("whole", "again"):
        started = time.monotonic()
        assert until_finished(lambda name=name: work(folder / name), random.Random(0), 0, 0) == 0
        taken.append(time.monotonic() - started)
    return min(taken)


def of_runs(folder: Path, kills: int, draw: random.Random, name: str = "toy") -> Kills:
    """Kill runs of an experiment, and compare all files that say what was found."""
    experiment = TOY if name == "toy" else EXPERIMENTS[name]
    config = ToyConfig(size=12) if name == "toy" else experiment.config("smoke")

    def run(place: Path) -> object:
        with open(os.devnull, "w") as quiet:
            os.dup2(quiet.fileno(), 2)
            return experiment.run(config, place, preset="smoke", resume=True)

    longest = timed(run, folder)
    whole, found = content(folder / "whole"), Kills()
    while found.kills < kills:
        place = folder / str(found.outcomes)
        happened = until_finished(lambda place=place: run(place), draw, longest, min(8, kills - found.kills))
        found.add(happened, content(place) != whole)
    return found


def of_drivers(folder: Path, kills: int, draw: random.Random) -> Kills:
    """Kill processes in which a strategy evolves, and compare the weights."""

    def evolve(place: Path) -> None:
        evolution = full()
        evolution.resume(place)
        evolution.run(GENERATIONS, checkpoint=place)

    longest = timed(evolve, folder)
    whole, found = full(), Kills()
    whole.run(GENERATIONS)
    while found.kills < kills:
        place = folder / str(found.outcomes)
        happened = until_finished(lambda place=place: evolve(place), draw, longest, min(8, kills - found.kills))
        again = full()
        assert again.resume(place)
        pairs = zip(again.model.state_dict().values(), whole.model.state_dict().values(), strict=True)
        found.add(happened, again.generation != GENERATIONS or not all(torch.equal(a, b) for a, b in pairs))
    return found


def of_fleet_drivers(folder: Path, kills: int, draw: random.Random) -> Kills:
    """Kill drivers of a fleet of Ray workers, and compare the weights."""
    whole, found = full(), Kills()
    whole.run(GENERATIONS)
    command = [sys.executable, "-m", "tests.faults.fleet_driver", str(folder / "run"), str(GENERATIONS)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    happened = 0
    while True:
        driver = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        index, before = folder / "run" / "checkpoint.json", None
        while happened < kills and driver.poll() is None:
            now = index.stat().st_mtime_ns if index.exists() else None
            if before is not None and now != before:  # it evolves
                time.sleep(draw.uniform(0, 0.05))
                driver.kill()
            before = now if before is None else before
            time.sleep(0.005)
        _, said = driver.communicate(timeout=300)
        if driver.returncode == 0:
            break
        assert driver.returncode == -signal.SIGKILL, said
        happened += 1
    again = full()
    assert again.resume(folder / "run")
    pairs = zip(again.model.state_dict().values(), whole.model.state_dict().values(), strict=True)
    found.add(happened, not all(torch.equal(a, b) for a, b in pairs))
    return found


def of_ranks(folder: Path, kills: int, draw: random.Random) -> Kills:
    """Kill one of two ranks of a sharded training, and compare losses and weights."""
    found, outcomes = Kills(), []
    for number in range(kills + 1):
        place = folder / str(number)
        place.mkdir(parents=True)
        moment = [draw.randrange(2), draw.randrange(EPOCHS), draw.randrange(2)] if number else []
        said = launch("tests.scaling.restarted", 2, place, *moment, restarts=1)
        assert ("exitcode: -9" in said) == bool(number)
        outcomes += results(place, 1)
        if number:
            first, last = outcomes[0], outcomes[-1]
            same = all(torch.equal(last["state"][name], value) for name, value in first["state"].items())
            found.add(1, not same or last["losses"] != first["losses"])
    return found
