"""A soak: everything that keeps state, over and over in one process, whose memory must stay flat.

`python -m tests.faults.soak --seconds 3600 --out soak.json` writes a JSON object: duration, rounds, the memory at the
start and at the end, and its curve. The exit status is 1 if the memory grew.
"""

import argparse
import contextlib
import ctypes
import gc
import io
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import flipout
from flipout._files import write_atomically
from flipout.experiments.report.page import write_page
from tests.es.toys import full, strategy
from tests.experiments.toy_experiment import TOY, ToyConfig

WARM = 0.1  # share of the time after which memory counts
FULL = 200  # rounds after which it counts: each of 4 models keeps 1,024 passes, for checkpoints; a round has 21
GROWTH = 32.0  # MiB over the whole soak that are noise of the allocator


SAMPLES = 120  # points of the memory curve


@dataclass(frozen=True)
class Sample:
    """The memory at one moment: what the process has, and what is in use of it.

    Resident memory that grows while the two kinds of memory in use do not is a gap between blocks, not a leak.
    """

    second: int
    rounds: int
    resident_mib: float
    malloc_mib: float  # in use, of C and C++: tensors are here
    python_blocks: int  # in use, of Python
    python_objects: int  # that the garbage collector knows

    @classmethod
    def now(cls, second: float, rounds: int) -> "Sample":
        gc.collect()
        blocks, objects = sys.getallocatedblocks(), len(gc.get_objects())
        return cls(round(second), rounds, round(resident(), 2), round(in_use(), 2), blocks, objects)


class Mallinfo(ctypes.Structure):
    """What glibc's `mallinfo2` returns."""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")),
        *((name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")),
    ]


def resident() -> float:
    """Return the resident memory of this process in MiB."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def in_use() -> float:
    """Return how many MiB of the memory of C are in use. What was freed may still be resident."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Mallinfo
    found = mallinfo()
    return (found.uordblks + found.hblkhd) / 2**20


def train() -> Callable[[int], None]:
    """Train and predict with every scheme."""
    schemes = ("flipout", "independent", "shared", "local_reparam")
    noise = flipout.MeanField(prior=flipout.bayes.Normal(0.0, 1.0))
    models = [
        flipout.perturb(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), noise, scheme=name)
        for name in schemes
    ]
    elbos = [flipout.bayes.ELBO(model, "categorical", num_data=64) for model in models]
    optimizers = [torch.optim.Adam(model.parameters(), 1e-3) for model in models]
    x, y = torch.randn(64, 16), torch.randint(4, (64,))

    def step(number: int) -> None:
        place = number % len(models)
        for _ in range(20):
            optimizers[place].zero_grad()
            elbos[place](x, y).loss.backward()
            optimizers[place].step()
        flipout.bayes.predict(models[place], x, samples=8, likelihood="categorical")

    return step


def evolve(folder: Path) -> Callable[[int], None]:
    """Evolve, save, resume in another strategy, and freeze."""

    def step(number: int) -> None:
        first, second = full(), full()
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            first.run(3, checkpoint=scratch)
            assert second.resume(scratch)
        second.run(5)
        strategy().run(2)
        flipout.freeze(second.model)

    return step


def experiment(folder: Path) -> Callable[[int], None]:
    """Run, resume and report."""

    def step(number: int) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as scratch, contextlib.redirect_stderr(io.StringIO()):
            for _ in range(2):
                TOY.run(ToyConfig(size=4), Path(scratch, "run"), preset="smoke", resume=True)
            write_page([Path(scratch, "run")], Path(scratch, "report.html"))

    return step


def soak(seconds: float) -> dict[str, Any]:
    """Return how long it took, how many rounds there were, and what became of the memory."""
    with tempfile.TemporaryDirectory() as name:
        steps = [train(), evolve(Path(name)), experiment(Path(name))]
        started, rounds, curve = time.monotonic(), 0, []
        while (taken := time.monotonic() - started) < seconds:
            for step in steps:
                step(rounds)
            rounds += 1
            if taken >= len(curve) * seconds / SAMPLES:
                curve.append(Sample.now(taken, rounds))
    counted = [sample for sample in curve if sample.second >= WARM * seconds and sample.rounds >= FULL] or curve[-1:]
    tenth = max(len(counted) // 10, 1)

    def ends(field: str) -> tuple[float, float]:
        """Return the median of the first and of the last tenth."""
        values = [getattr(sample, field) for sample in counted]
        return statistics.median(values[:tenth]), statistics.median(values[-tenth:])

    (first, last), (before, after) = ends("resident_mib"), ends("malloc_mib")
    return {
        "seconds": round(taken),
        "cpu_seconds": round(time.process_time()),
        "nice": os.nice(0),
        "rounds": rounds,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "mib_at_the_start": first,
        "mib_at_the_end": last,
        "mib_at_most": max(sample.resident_mib for sample in counted),
        "malloc_mib_at_the_start": before,
        "malloc_mib_at_the_end": after,
        "is_flat": last - first < GROWTH,
        "curve": [asdict(sample) for sample in curve],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--out", type=Path, default=Path("soak.json"), help="the JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = soak(options.seconds)
    write_atomically(options.out, json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: value for name, value in found.items() if name != "curve"}, indent=1))
    sys.exit(0 if found["is_flat"] else 1)
