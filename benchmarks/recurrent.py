"""An LSTM, forward and backward, against torch.nn.LSTM, with noise on hidden-to-hidden or on both weights.

On a GPU both run uncaptured and captured as CUDA graphs. Every call and every replay takes a fresh draw.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import flipout

from .gpu import replayed, timed
from .record import Row, interleaved, rows
from .step import DISTRIBUTIONS

CPU_SHAPES = ((32, 35, 256, "float32"),)
GPU_SHAPES = (
    (40, 35, 650, "tf32"),
    (40, 35, 650, "bfloat16"),
    (32, 100, 1000, "tf32"),
    (32, 100, 1000, "bfloat16"),
    (512, 70, 1150, "bfloat16"),
    (4096, 70, 1150, "bfloat16"),
)
NAMES, LARGE = ("multiplicative", "dropconnect", "mean-field"), 2**27
WHERE = {"hh": "weight_hh*", "ih and hh": "weight_*"}


def step(layer: nn.Module, x: Tensor, grad: Tensor) -> Callable[[], None]:
    """Return a training step of one layer, whose gradients are not accumulated."""
    inputs = [x, *layer.parameters()]

    def run() -> None:
        for tensor in inputs:
            tensor.grad = None
        layer(x)[0].backward(grad)

    return run


def layers(names: tuple[str, ...], hidden: int, device: str, dtype: torch.dtype) -> dict[str, nn.Module]:
    """Return the plain layer and the perturbed ones, by their variant."""
    variants: dict[str, nn.Module] = {"plain": nn.LSTM(hidden, hidden).to(device, dtype)}
    for name in names:
        for scheme in ("shared", "flipout"):
            for weights, where in WHERE.items() if name == "multiplicative" else [("hh", WHERE["hh"])]:
                lstm = nn.LSTM(hidden, hidden).to(device, dtype)
                flipout.perturb(lstm, DISTRIBUTIONS[name], scheme=scheme, where=where)
                variants[f"{name} {scheme} {weights}"] = lstm
    return variants


def run() -> Iterator[Row]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    for batch, time, hidden, precision in GPU_SHAPES if device == "cuda" else CPU_SHAPES:
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        x = torch.randn(time, batch, hidden, device=device, dtype=dtype, requires_grad=True)
        grad = torch.randn(time, batch, hidden, device=device, dtype=dtype)
        names = NAMES if batch * time * hidden < LARGE else NAMES[:1]  # captured graphs are all in memory at once
        runs = {name: step(layer, x, grad) for name, layer in layers(names, hidden, device, dtype).items()}
        against = {name: "plain" for name in runs if name != "plain"}
        case = f"lstm {batch} × {time} × {hidden}"
        if device == "cpu":
            yield from rows(case, interleaved(runs, seconds=20), against)
            continue
        measured = interleaved({name: timed(run) for name, run in runs.items()}, seconds=3, least=10)
        yield from rows(f"{case} uncaptured", measured, against, dtype=precision)
        graphs = {name: replayed(run) for name, run in runs.items()}
        measured = interleaved({name: timed(graph) for name, graph in graphs.items()}, seconds=3, least=10)
        for graph in graphs.values():
            graph.close()
        yield from rows(f"{case} captured", measured, against, dtype=precision)
