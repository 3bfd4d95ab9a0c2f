"""Linear layers and VGG16 on one GPU in bf16, forward and backward, against shared and local reparameterisation.

Steps are captured as CUDA graphs, so that kernels are timed. `of products` is the time of the products alone. If
bayesian-torch is installed, its layer is timed too, captured and uncaptured.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor, nn

import flipout
from flipout._perturbation import Signs
from flipout.experiments.training.networks import convgg
from flipout.ops.triton.flips import add_flipped, flip_drawn
from flipout.ops.triton.fp8 import largest, quantise
from flipout.ops.triton.row_sums import flip_and_sum, sum_rows
from flipout.ops.triton.scaled_streams import scaled_noise

from .gpu import measure_captured, timed
from .record import Row, interleaved, rows
from .step import held_bytes, step_of

DTYPE = torch.bfloat16
NOISE = {"mean-field": (flipout.MeanField(), 6), "gaussian": (flipout.Gaussian(0.1), 5)}  # with flipout's products
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


def _linear(examples: int, width: int, kind: str) -> Iterator[Row]:
    noise, products = NOISE[kind]
    case = f"linear {examples} {width}→{width} {kind}"
    x = torch.randn(examples, width, device="cuda", dtype=DTYPE, requires_grad=True)
    grad = torch.randn_like(x)
    layers = {
        name: flipout.nn.Linear(width, width, distribution=noise, scheme=scheme).to(x)
        for name, scheme in SCHEMES.items()
    }
    steps: dict[str, Callable[[], object]] = {
        name: step_of(layer, [x, *layer.parameters()], x, grad) for name, layer in layers.items()
    }
    weight, room = torch.randn(width, width, device="cuda", dtype=DTYPE), torch.empty_like(grad)
    steps["one product"] = lambda: torch.mm(x.detach(), weight.T, out=room)
    measured = measure_captured(steps)
    against = dict.fromkeys(list(layers)[1:], "shared")
    yield from rows(f"{case} captured", measured, against, dtype="bfloat16")
    both = {name: measured[name] for name in ("local_reparam", "flipout")}
    yield from rows(f"{case} captured, the rival", both, {"flipout": "local_reparam"}, dtype="bfloat16")
    alone = {"flipout": measured["flipout"], "of products": [products * value for value in measured["one product"]]}
    yield from rows(f"{case} captured, roofline", alone, {"of products": "flipout"}, dtype="bfloat16")
    held = {name: [float(held_bytes(layer, x))] for name, layer in layers.items() if name != "local_reparam"}
    yield from rows(f"{case} held for backward", held, {"flipout": "shared"}, what="bytes", dtype="bfloat16")
    if kind == "mean-field":
        ours = {name: steps[name] for name in ("flipout", "flipout fp8")}
        yield from _against_bayesian_torch(case, width, x, grad, ours)


def _against_bayesian_torch(
    case: str, width: int, x: Tensor, grad: Tensor, ours: Mapping[str, Callable[[], object]]
) -> Iterator[Row]:
    try:
        from bayesian_torch.layers import LinearFlipout  # pyright: ignore[reportMissingImports]
    except ImportError:
        return
    rival = LinearFlipout(width, width).to(x)
    step = step_of(partial(rival, return_kl=False), [x, *rival.parameters()], x, grad)
    steps = {**ours, "bayesian-torch": step}
    measured = interleaved({name: timed(run) for name, run in steps.items()}, seconds=2)
    against = dict.fromkeys(ours, "bayesian-torch")
    yield from rows(f"{case} wall time", measured, against, dtype="bfloat16")
    yield from rows(f"{case} captured, bayesian-torch too", measure_captured(steps), against, dtype="bfloat16")


def _kernels(examples: int, width: int) -> Iterator[Row]:
    """Measure the kernels around the products against a copy of as many numbers."""
    x, y = (torch.randn(examples, width, device="cuda", dtype=DTYPE) for _ in range(2))
    room, spread, start = torch.empty_like(x), torch.rand_like(x), torch.zeros((), dtype=torch.int64, device="cuda")
    signs, scale = Signs(1, 0, examples, False), torch.ones((), device="cuda")
    runs = {
        "copy": lambda: room.copy_(x),
        "flip": lambda: flip_drawn(x, signs, start, 1, -1),
        "add flipped": lambda: add_flipped(y, x, signs, start, 0, -1),
        "noise": lambda: scaled_noise(start, spread, tuple(x.shape), "normal", DTYPE, DTYPE),
        "sum rows": lambda: sum_rows(x, -1),
        "flip and sum rows": lambda: flip_and_sum(x, signs, start, 0, -1),
        "largest": lambda: largest(x),
        "to FP8, and turned": lambda: quantise(x, scale, (signs, start, 1), True, True),
    }
    against: dict[str, str] = dict.fromkeys(list(runs)[1:], "copy")
    yield from rows(f"kernels {examples} × {width} captured", measure_captured(runs), against, dtype="bfloat16")


def _vgg(examples: int) -> Iterator[Row]:
    x = torch.randn(examples, 3, 32, 32, device="cuda", dtype=DTYPE).to(memory_format=torch.channels_last)
    grad = torch.randn(examples, 10, device="cuda", dtype=DTYPE)
    steps, held = {}, {}
    for scheme in ("plain", "shared", "flipout"):
        model: nn.Module = convgg(10).to(x).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        if scheme != "plain":
            flipout.perturb(model, flipout.MultiplicativeGaussian(0.1), scheme=scheme)
        steps[scheme], held[scheme] = step_of(model, list(model.parameters()), x, grad), [float(held_bytes(model, x))]
    against = {"flipout": "shared", "shared": "plain"}
    yield from rows(f"vgg16 {examples} captured", measure_captured(steps), against, dtype="bfloat16")
    yield from rows(f"vgg16 {examples} held for backward", held, against, what="bytes", dtype="bfloat16")
