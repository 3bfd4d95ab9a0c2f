"""Chaos: 100 kills of runs, drivers and ranks, and a fleet that is disturbed for 200 generations.

`python -m tests.faults.chaos --out chaos.json` writes a JSON object, and ends with status 1 if anything differs from an
undisturbed run.
"""

import argparse
import json
import platform
import random
import sys
import tempfile
import time
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch

from flipout._files import write_atomically
from tests.faults import kills


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=50, help="kills of runs of a toy experiment")
    parser.add_argument("--real-runs", type=int, default=10, help="kills of smoke runs of variance-fc")
    parser.add_argument("--drivers", type=int, default=30, help="kills of processes in which a strategy evolves")
    parser.add_argument("--fleet-drivers", type=int, default=4, help="kills of drivers of Ray workers")
    parser.add_argument("--ranks", type=int, default=6, help="kills of one of two ranks")
    parser.add_argument("--generations", type=int, default=200, help="generations of the disturbed fleet")
    parser.add_argument("--events", type=int, default=60, help="disturbances of the fleet")
    parser.add_argument("--out", type=Path, default=Path("chaos.json"), help="the JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    draw, found, differ = random.Random(options.seed), {}, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        real = partial(kills.of_runs, name="variance-fc")
        parts = {
            "runs": (kills.of_runs, options.runs),
            "real runs": (real, options.real_runs),
            "drivers": (kills.of_drivers, options.drivers),
            "ranks": (kills.of_ranks, options.ranks),
            "fleet drivers": (kills.of_fleet_drivers, options.fleet_drivers),
        }
        for part, (work, count) in parts.items():
            if not count:
                continue
            started = time.monotonic()
            outcome = work(folder / part, count, draw)
            found[part] = {**asdict(outcome), "seconds": round(time.monotonic() - started)}
            differ += outcome.differ
            print(part, found[part], file=sys.stderr, flush=True)
            write(options.out, found)
        if options.generations:
            found["fleet"] = disturbed_fleet(folder / "chaos", options.generations, options.events, options.seed)
            differ += not found["fleet"]["equal"]
    print(write(options.out, found))
    return 1 if differ else 0


def write(path: Path, found: dict) -> str:
    """Write what was found so far, and return it. A part that fails later does not take the others with it."""
    versions = {"torch": torch.__version__, "python": platform.python_version(), "ray": version("ray")}
    kills = sum(part.get("kills", 0) for part in found.values())
    text = json.dumps({**found, "kills": kills, **versions}, indent=1) + "\n"
    write_atomically(path, text)
    return text


def disturbed_fleet(folder: Path, generations: int, events: int, seed: int) -> dict:
    """Start Ray here, after all forks."""
    import ray

    from flipout import es
    from tests.faults.fleet import disturbed

    ray.init("local", num_cpus=4, _node_ip_address="127.0.0.2", include_dashboard=False, log_to_driver=False)
    try:
        with es.RayFleet(2, patience=2.0) as fleet:
            return disturbed(folder, generations, events, seed, fleet)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
