"""What a training step costs, beside one of plain LoRA."""

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from .rows import BAYESIAN, AdapterStudy, Learner

_STEPS = 3  # measured for the peak memory; the first creates the optimiser's state


class Memory(Protocol):
    """Measures the peak memory since `restart`."""

    def restart(self) -> None:
        """Forget what was in use before."""
        ...

    def most(self) -> float:
        """Return the largest number of bytes since then."""
        ...


class CudaMemory:
    """The memory of torch's tensors on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def restart(self) -> None:
        gc.collect()
        torch.cuda.reset_peak_memory_stats(self.device)

    def most(self) -> float:
        return float(torch.cuda.max_memory_allocated(self.device))


def step_costs(study: AdapterStudy) -> dict[str, dict[str, list[float]]]:
    """Return the costs of a step of plain LoRA and of every Bayesian row, at the first seed."""
    config, device = study.config, study.run.device
    return measured_costs(
        ("lora", *BAYESIAN),
        lambda row: study.learned(row, f"{row}.0"),
        study.data["train"][slice(config.batch)],
        config.rounds,
        CudaMemory(device) if device.type == "cuda" else None,
    )


def measured_costs(
    rows: Sequence[str],
    make: Callable[[str], Learner],
    batch: Any,
    rounds: int,
    memory: Memory | None = None,
) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of a step in each round, and the peak memory, of every row.

    Time is taken in turns, so that all rows meet the same machine. On a CPU it is that of the process: other processes
    do not count. Memory is taken of one learner at a time, since what the others keep would hide a difference.

    Args:
        rows: The rows of the table.
        make: Makes the learner of a row, which these steps train further.
        batch: The batch of every step.
        rounds: Steps of each learner that are timed. One before them is not.
        memory: Measures the peak memory; None leaves it out.
    """
    found: dict[str, dict[str, list[float]]] = {row: {"seconds": [], "peak": []} for row in rows}
    for row in rows if memory is not None else ():
        found[row]["peak"].append(_peak(make(row), batch, memory))  # pyright: ignore[reportArgumentType]
    learners = {row: make(row) for row in rows}
    steps = {row: _step(learner, batch) for row, learner in learners.items()}
    for turn in range(rounds + 1):
        for row, step in steps.items():
            seconds = _seconds(step, learners[row].run.device)
            if turn:
                found[row]["seconds"].append(seconds)
    return found


def _step(learner: Learner, batch: Any) -> Callable[[], None]:
    optimizer, num_data = learner.optimizer(), batch.items

    def step() -> None:
        with learner.randomness(), learner.noise():
            learner.step(batch, optimizer, num_data)

    learner.model.train()
    return step


def _peak(learner: Learner, batch: Any, memory: Memory) -> float:
    step = _step(learner, batch)
    memory.restart()
    for _ in range(_STEPS):
        step()
    return memory.most()


def _seconds(step: Callable[[], None], device: torch.device) -> float:
    if device.type != "cuda":
        start = time.process_time()
        step()
        return time.process_time() - start
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    step()
    torch.cuda.synchronize(device)
    return time.perf_counter() - start
