"""LSTM over sequences, forward + backward, against torch.nn.LSTM: noise on hidden-to-hidden, or on both weights.

On a GPU both sides run as they are, and captured as CUDA graphs; every call and every replay draws anew.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import flipout

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
    """A training step of one layer, its gradients made anew."""
    inputs = [x, *layer.parameters()]

    def run() -> None:
        for tensor in inputs:
            tensor.grad = None
        layer(x)[0].backward(grad)

    return run


def layers(names: tuple[str, ...], hidden: int, device: str, dtype: torch.dtype) -> dict[str, nn.Module]:
    made: dict[str, nn.Module] = {"plain": nn.LSTM(hidden, hidden).to(device, dtype)}
    for name in names:
        for scheme in ("shared", "flipout"):
            for what, where in WHERE.items() if name == "multiplicative" else [("hh", WHERE["hh"])]:
                lstm = nn.LSTM(hidden, hidden).to(device, dtype)
                made[f"{name} {scheme} {what}"] = flipout.perturb(lstm, DISTRIBUTIONS[name], scheme=scheme, where=where)
    return made


def timed(run: Callable[[], object]) -> Callable[[], object]:
    """Until the device is done."""

    def whole() -> None:
        run()
        torch.cuda.synchronize()

    return whole


def replayed(run: Callable[[], object]) -> flipout.Captured:
    captured = flipout.capture(run)
    for _ in range(3):
        captured()
    assert captured.graph is not None, "the step was not captured"
    return captured


def run() -> Iterator[Row]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    for batch, time, hidden, precision in GPU_SHAPES if device == "cuda" else CPU_SHAPES:
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        x = torch.randn(time, batch, hidden, device=device, dtype=dtype, requires_grad=True)
        grad = torch.randn(time, batch, hidden, device=device, dtype=dtype)
        names = NAMES if batch * time * hidden < LARGE else NAMES[:1]  # captured, all of them are in memory at once
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
