"""Processes on loopback that work side by side."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def spawned(work: Callable[[int], dict[str, Any]], ranks: int, folder: Path) -> list[dict[str, Any]]:
    """What the work of each rank gives."""
    mp.spawn(_member, (work, ranks, str(folder)), nprocs=ranks)
    return [torch.load(folder / f"{rank}.pt") for rank in range(ranks)]


def _member(rank: int, work: Callable[[int], dict[str, Any]], ranks: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    try:
        torch.save(work(rank), f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()
