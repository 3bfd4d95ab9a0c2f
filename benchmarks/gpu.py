"""How the cases time a GPU: to the end of its work, and as captured CUDA graphs."""

from collections.abc import Callable, Mapping

import torch

import flipout

from .record import interleaved

REPLAYS = 5  # launched before the device is waited for


def timed(run: Callable[[], object]) -> Callable[[], object]:
    """Return a run that waits until the device is done."""

    def run_to_the_end() -> None:
        run()
        torch.cuda.synchronize()

    return run_to_the_end


def replayed(run: Callable[[], object]) -> flipout.Captured:
    """Return the run as a captured graph."""
    captured = flipout.capture(run)
    for _ in range(3):
        captured()
    assert captured.graph is not None, "the step was not captured"
    return captured


def measure_captured(runs: Mapping[str, Callable[[], object]], seconds: float = 2) -> dict[str, list[float]]:
    """Return the milliseconds of one replay of each run, captured as a graph."""
    graphs = {name: replayed(run) for name, run in runs.items()}
    several = {name: timed(lambda graph=graph: [graph() for _ in range(REPLAYS)]) for name, graph in graphs.items()}
    measured = interleaved(several, seconds=seconds)
    for graph in graphs.values():
        graph.close()
    return {name: [value / REPLAYS for value in values] for name, values in measured.items()}
