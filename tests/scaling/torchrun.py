"""Start worker processes with torchrun on one machine. Each runs `python -m tests.scaling.…`."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ROOT = Path(__file__).parents[2]
# Otherwise torchrun's agent shares its store, and restarted workers find the addresses of dead ones (pytorch #135712).
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


def launch(module: str, ranks: int, *args: Any, restarts: int = 0) -> str:
    """Run a module in `ranks` processes, on a free port. Return what they printed."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    finished = subprocess.run(
        [*run, f"--max-restarts={restarts}", "-m", module, *map(str, args)],
        cwd=ROOT,
        env={**os.environ, **OWN_STORE, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not finished.returncode, finished.stderr[-6000:]
    return finished.stdout + finished.stderr


def results(folder: Path, ranks: int) -> list[dict[Any, Any]]:
    return [torch.load(folder / f"{rank}.pt") for rank in range(ranks)]


def joined() -> int:
    """Join the process group and return the rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    return dist.get_rank()
