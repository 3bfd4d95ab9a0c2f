"""What the layers choose by size on one GPU, measured both ways in bf16, as captured graphs: both products of a linear
layer in one launch or cuBLAS's two with the sum behind them; two convolutions, or one of two groups, or compiled."""

from collections.abc import Callable, Iterator
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flipout
from flipout.ops.triton.flips import add_flipped
from flipout.ops.triton.twice import multiply_twice
from flipout.perturbation import Signs
from flipout.schemes import SchemeName

from .record import Row, rows
from .step import step_of
from .training_gpu import KIND, captured

WIDTHS, EXAMPLES = (256, 512, 1024, 2048, 4096), (32, 512, 8192)
CONVOLUTIONS = ((2048, 64, 32), (2048, 256, 8))  # examples, channels, side


def run() -> Iterator[Row]:
    for width, examples in product(WIDTHS, EXAMPLES):
        yield from _products(examples, width, "forward")
        yield from _products(examples, width, "backward")
    for examples, channels, side in CONVOLUTIONS:
        yield from _convolutions(examples, channels, side)


def _products(examples: int, width: int, way: str) -> Iterator[Row]:
    """Backward is the input's gradient, whose weights lie the other way round."""
    x, flipped = (torch.randn(examples, width, device="cuda", dtype=KIND) for _ in range(2))
    mean, delta = (torch.randn(width, width, device="cuda", dtype=KIND) for _ in range(2))
    if way == "backward":
        mean, delta = mean.T, delta.T
    signs, seed = Signs(1, 0, examples, False), torch.zeros((), dtype=torch.int64, device="cuda")
    runs: dict[str, Callable[[], object]] = {
        "apart": lambda: add_flipped(F.linear(x, mean), F.linear(flipped, delta), signs, seed, 0, -1),
        "one launch": lambda: multiply_twice(x, flipped, mean, delta, None, signs, seed, 0),
    }
    case = f"both products {examples} {width}→{width} {way} captured"
    yield from rows(case, captured(runs, 0.4), {"one launch": "apart"}, dtype="bfloat16")


def _convolutions(examples: int, channels: int, side: int) -> Iterator[Row]:
    x = torch.randn(examples, channels, side, side, device="cuda", dtype=KIND)
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    grad = torch.randn_like(x)
    case = f"conv2d {examples}×{side}×{side} {channels}→{channels} 3×3"
    mean, delta = (
        torch.randn(channels, channels, 3, 3, device="cuda", dtype=KIND)
        .div(9 * channels)
        .to(memory_format=torch.channels_last)
        .requires_grad_()
        for _ in range(2)
    )
    r, s = (torch.randn(examples, channels, 1, 1, device="cuda").sign().to(KIND) for _ in range(2))

    def two(x: Tensor) -> Tensor:
        return F.conv2d(x, mean, padding=1) + r * F.conv2d(x * s, delta, padding=1)

    def grouped(x: Tensor) -> Tensor:
        both = F.conv2d(torch.cat((x, x * s), 1), torch.cat((mean, delta)), padding=1, groups=2)
        straight, turned = both.chunk(2, 1)
        return straight + r * turned

    forms = {
        "two": step_of(two, [x, mean, delta], x, grad),
        "one of two groups": step_of(grouped, [x, mean, delta], x, grad),
    }
    yield from rows(f"{case} captured, signs given", captured(forms), {"one of two groups": "two"}, dtype="bfloat16")
    steps = {}
    schemes: dict[str, SchemeName] = {"shared": "shared", "flipout": "flipout", "flipout compiled": "flipout"}
    for name, scheme in schemes.items():
        layer = nn.Conv2d(channels, channels, 3, padding=1).to(x).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        flipout.perturb(layer, flipout.MultiplicativeGaussian(0.1), scheme=scheme)
        model = torch.compile(layer) if "compiled" in name else layer
        steps[name] = step_of(model, [x, *layer.parameters()], x, grad)
    against = {"flipout": "shared", "flipout compiled": "flipout"}
    yield from rows(f"{case} captured", captured(steps), against, dtype="bfloat16")
