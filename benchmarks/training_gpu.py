"""Linear layers and VGG16 on one GPU in bf16, forward + backward: flipout against shared and local reparameterisation.

Kernel time, of steps that are captured as CUDA graphs; beside it the share of it that the products alone would take
(`of products`), and the wall time against bayesian-torch where that is installed.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor, nn

import flipout
from flipout.experiments.networks import convgg
from flipout.ops.triton.flips import add_flipped, flip_drawn
from flipout.ops.triton.quantise import largest, quantise
from flipout.ops.triton.streams import scaled_noise
from flipout.ops.triton.sums import flip_and_sum, sum_rows
from flipout.perturbation import Signs

from .record import Row, interleaved, rows
from .recurrent import replayed, timed
from .step import held_bytes, step_of

KIND = torch.bfloat16
NOISE = {"mean-field": (flipout.MeanField(), 6), "gaussian": (flipout.Gaussian(0.1), 5)}  # products of flipout
SHAPES = (
    (8192, 512, ("mean-field",)),
    (8192, 1024, ("mean-field",)),
    (8192, 4096, ("mean-field", "gaussian")),
    (16384, 8192, ("mean-field",)),
)
SCHEMES = {
    "shared": flipout.Shared(),
    "flipout": flipout.Flipout(),
    "local_reparam": flipout.LocalReparam(),
    "flipout fp8": flipout.Flipout(perturbation_dtype=torch.float8_e4m3fn),
}


def run() -> Iterator[Row]:
    for examples, width, kinds in SHAPES:
        for kind in kinds:
            yield from _linear(examples, width, kind)
    yield from _vgg(2048)
    yield from _kernels(8192, 4096)


def captured(runs: Mapping[str, Callable[[], object]], seconds: float = 2) -> dict[str, list[float]]:
    """Of one replay, several being launched before the device is waited for."""
    graphs = {name: replayed(run) for name, run in runs.items()}
    several = {name: timed(lambda graph=graph: [graph() for _ in range(5)]) for name, graph in graphs.items()}
    measured = interleaved(several, seconds=seconds)
    for graph in graphs.values():
        graph.close()
    return {name: [value / 5 for value in values] for name, values in measured.items()}


def _linear(examples: int, width: int, kind: str) -> Iterator[Row]:
    noise, products = NOISE[kind]
    case = f"linear {examples} {width}→{width} {kind}"
    x = torch.randn(examples, width, device="cuda", dtype=KIND, requires_grad=True)
    grad = torch.randn_like(x)
    layers = {
        name: flipout.nn.Linear(width, width, distribution=noise, scheme=scheme).to(x)
        for name, scheme in SCHEMES.items()
    }
    steps: dict[str, Callable[[], object]] = {
        name: step_of(layer, [x, *layer.parameters()], x, grad) for name, layer in layers.items()
    }
    weight, room = torch.randn(width, width, device="cuda", dtype=KIND), torch.empty_like(grad)
    steps["one product"] = lambda: torch.mm(x.detach(), weight.T, out=room)
    measured = captured(steps)
    against = dict.fromkeys(list(layers)[1:], "shared")
    yield from rows(f"{case} captured", measured, against, dtype="bfloat16")
    both = {name: measured[name] for name in ("local_reparam", "flipout")}
    yield from rows(f"{case} captured, the rival", both, {"flipout": "local_reparam"}, dtype="bfloat16")
    alone = {"flipout": measured["flipout"], "of products": [products * one for one in measured["one product"]]}
    yield from rows(f"{case} captured, roofline", alone, {"of products": "flipout"}, dtype="bfloat16")
    held = {name: [float(held_bytes(layer, x))] for name, layer in layers.items() if name != "local_reparam"}
    yield from rows(f"{case} held for backward", held, {"flipout": "shared"}, what="bytes", dtype="bfloat16")
    if kind == "mean-field":
        own = {name: steps[name] for name in ("flipout", "flipout fp8")}
        yield from _against_bayesian_torch(case, width, x, grad, own)


def _against_bayesian_torch(
    case: str, width: int, x: Tensor, grad: Tensor, own: Mapping[str, Callable[[], object]]
) -> Iterator[Row]:
    try:
        from bayesian_torch.layers import LinearFlipout  # pyright: ignore[reportMissingImports]
    except ImportError:
        return
    other = LinearFlipout(width, width).to(x)
    step = step_of(partial(other, return_kl=False), [x, *other.parameters()], x, grad)
    every = {**own, "bayesian-torch": step}
    measured = interleaved({name: timed(one) for name, one in every.items()}, seconds=2)
    against = dict.fromkeys(own, "bayesian-torch")
    yield from rows(f"{case} wall time", measured, against, dtype="bfloat16")
    yield from rows(f"{case} captured, bayesian-torch too", captured(every), against, dtype="bfloat16")


def _kernels(examples: int, width: int) -> Iterator[Row]:
    """The kernels around the products, beside a copy of as many numbers."""
    x, y = (torch.randn(examples, width, device="cuda", dtype=KIND) for _ in range(2))
    room, spread, start = torch.empty_like(x), torch.rand_like(x), torch.zeros((), dtype=torch.int64, device="cuda")
    signs, scale = Signs(1, 0, examples, False), torch.ones((), device="cuda")
    runs = {
        "copy": lambda: room.copy_(x),
        "flip": lambda: flip_drawn(x, signs, start, 1, -1),
        "add flipped": lambda: add_flipped(y, x, signs, start, 0, -1),
        "noise": lambda: scaled_noise(start, spread, tuple(x.shape), "normal", KIND, KIND),
        "sum rows": lambda: sum_rows(x, -1),
        "flip and sum rows": lambda: flip_and_sum(x, signs, start, 0, -1),
        "largest": lambda: largest(x),
        "to FP8, and turned": lambda: quantise(x, scale, (signs, start, 1), True, True),
    }
    against: dict[str, str] = dict.fromkeys(list(runs)[1:], "copy")
    yield from rows(f"kernels {examples} × {width} captured", captured(runs), against, dtype="bfloat16")


def _vgg(examples: int) -> Iterator[Row]:
    x = torch.randn(examples, 3, 32, 32, device="cuda", dtype=KIND).to(memory_format=torch.channels_last)
    grad = torch.randn(examples, 10, device="cuda", dtype=KIND)
    steps, held = {}, {}
    for scheme in ("plain", "shared", "flipout"):
        model: nn.Module = convgg(10).to(x).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        if scheme != "plain":
            flipout.perturb(model, flipout.MultiplicativeGaussian(0.1), scheme=scheme)
        steps[scheme], held[scheme] = step_of(model, list(model.parameters()), x, grad), [float(held_bytes(model, x))]
    against = {"flipout": "shared", "shared": "plain"}
    yield from rows(f"vgg16 {examples} captured", captured(steps), against, dtype="bfloat16")
    yield from rows(f"vgg16 {examples} held for backward", held, against, what="bytes", dtype="bfloat16")
