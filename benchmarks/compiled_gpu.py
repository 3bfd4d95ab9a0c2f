"""A compiled Llama on one GPU, bf16 autocast: a training step, its peak memory, and its first step with cold caches."""

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from .gpu import measure_captured, timed
from .models_gpu import DTYPE, ROWS, Step, llama, next_token_loss, noisy, step, tokens
from .record import Row, interleaved, rows

VARIANTS = {"plain": None, "flipout": "flipout"}


def run() -> Iterator[Row]:
    batch, against = (tokens(),), {"flipout": "plain"}
    seconds: dict[str, list[float]] = {}
    for name, scheme in VARIANTS.items():
        torch.compiler.reset()
        with TemporaryDirectory() as folder, _caches_in(folder):
            first = timed(step(torch.compile(noisy(llama(2), scheme)), next_token_loss, batch))
            begin = time.perf_counter()
            first()
            seconds[name] = [1e3 * (time.perf_counter() - begin)]
    yield from rows("Llama 2 × 1024, first compiled step", seconds, against, dtype=DTYPE)
    case = "Llama 12 × 1024, 16 × 1024 compiled"
    steps: dict[str, Step] = {}
    peaks: dict[str, list[float]] = {}
    above: dict[str, list[float]] = {}
    for name, scheme in VARIANTS.items():
        before = torch.cuda.memory_allocated()
        torch.compiler.reset()
        steps[name] = timed(step(torch.compile(noisy(llama(12), scheme)), next_token_loss, batch))
        for _ in range(3):
            steps[name]()
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        steps[name]()
        peak = torch.cuda.max_memory_allocated()
        peaks[name], above[name] = [float(peak - before)], [float(peak - held)]
    measured = interleaved(steps, seconds=4)
    yield from rows(case, measured, against, dtype=DTYPE)
    products = statistics.median(measure_captured({"products": products_of(llama(12), ROWS)})["products"])
    floor = {"plain": measured["plain"], "its products twice": [value + products for value in measured["plain"]]}
    yield from rows(f"{case}, roofline", floor, {"its products twice": "plain"}, dtype=DTYPE)
    yield from rows(f"{case}, peak", peaks, against, what="bytes", dtype=DTYPE)
    yield from rows(f"{case}, peak above Parameters and gradients", above, against, what="bytes", dtype=DTYPE)


def products_of(model: nn.Module, count: int) -> Step:
    """Return the three products of each linear layer in a training step: flipout takes each of them twice."""
    shapes = [(layer.in_features, layer.out_features) for layer in model.modules() if isinstance(layer, nn.Linear)]
    operands = {shape: [_random(count, shape[0]), _random(count, shape[1]), _random(*shape)] for shape in set(shapes)}

    def run() -> None:
        for shape in shapes:
            x, dy, weight = operands[shape]
            for left, right in ((x, weight), (dy, weight.T), (dy.T, x)):
                torch.mm(left, right)

    return run


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def _caches_in(folder: str) -> Any:
    """Compile with empty caches: Inductor and Triton read from the environment where theirs are."""
    names = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
    return patch.dict(os.environ, {name: str(Path(folder, part)) for name, part in names.items()})
