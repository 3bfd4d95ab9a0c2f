"""The choices that layers make by size, measured both ways on one GPU, in bf16, as captured graphs.

- A linear layer: both products in one launch, or two of cuBLAS's products and a launch that adds them.
- A convolution: two, or one with two groups; by itself, or compiled.
"""

from collections.abc import Callable, Iterator
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flipout
from flipout._perturbation import Signs
from flipout.ops.triton.flips import add_flipped
from flipout.ops.triton.fused_linear import multiply_fused
from flipout.schemes import SchemeName

from .gpu import measure_captured
from .record import Row, rows
from .step import step_of

DTYPE = torch.bfloat16
WIDTHS, EXAMPLES = (256, 512, 1024, 2048, 4096), (32, 512, 8192)
CONVOLUTIONS = ((2048, 64, 32), (2048, 256, 8))  # examples, channels, side


def run() -> Iterator[Row]:
    for width, examples in product(WIDTHS, EXAMPLES):
        yield from _products(examples, width, "forward")
        yield from _products(examples, width, "backward")
    for examples, channels, side in CONVOLUTIONS:
        yield from _convolutions(examples, channels, side)


def _products(examples: int, width: int, direction: str) -> Iterator[Row]:
    """Measure both products. Backward is the input's gradient, which multiplies by transposed weights."""
    x, flipped = (torch.randn(examples, width, device="cuda", dtype=DTYPE) for _ in range(2))
    mean, delta = (torch.randn(width, width, device="cuda", dtype=DTYPE) for _ in range(2))
    if direction == "backward":
        mean, delta = mean.T, delta.T
    signs, seed = Signs(1, 0, examples, False), torch.zeros((), dtype=torch.int64, device="cuda")
    runs: dict[str, Callable[[], object]] = {
        "apart": lambda: add_flipped(F.linear(x, mean), F.linear(flipped, delta), signs, seed, 0, -1),
        "one launch": lambda: multiply_fused(x, flipped, mean, delta, None, signs, seed, 0),
    }
    case = f"both products {examples} {width}→{width} {direction} captured"
    yield from rows(case, measure_captured(runs, 0.4), {"one launch": "apart"}, dtype="bfloat16")


def _convolutions(examples: int, channels: int, side: int) -> Iterator[Row]:
    x = torch.randn(examples, channels, side, side, device="cuda", dtype=DTYPE)
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    grad = torch.randn_like(x)
    case = f"conv2d {examples}×{side}×{side} {channels}→{channels} 3×3"
    mean, delta = (
        torch.randn(channels, channels, 3, 3, device="cuda", dtype=DTYPE)
        .div(9 * channels)
        .to(memory_format=torch.channels_last)
        .requires_grad_()
        for _ in range(2)
    )
    r, s = (torch.randn(examples, channels, 1, 1, device="cuda").sign().to(DTYPE) for _ in range(2))

    def two(x: Tensor) -> Tensor:
        return F.conv2d(x, mean, padding=1) + r * F.conv2d(x * s, delta, padding=1)

    def grouped(x: Tensor) -> Tensor:
        both = F.conv2d(torch.cat((x, x * s), 1), torch.cat((mean, delta)), padding=1, groups=2)
        by_mean, by_noise = both.chunk(2, 1)
        return by_mean + r * by_noise

    forms = {
        "two": step_of(two, [x, mean, delta], x, grad),
        "one of two groups": step_of(grouped, [x, mean, delta], x, grad),
    }
    yield from rows(
        f"{case} captured, signs given", measure_captured(forms), {"one of two groups": "two"}, dtype="bfloat16"
    )
    steps = {}
    schemes: dict[str, SchemeName] = {"shared": "shared", "flipout": "flipout", "flipout compiled": "flipout"}
    for name, scheme in schemes.items():
        layer = nn.Conv2d(channels, channels, 3, padding=1).to(x).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        flipout.perturb(layer, flipout.MultiplicativeGaussian(0.1), scheme=scheme)
        model = torch.compile(layer) if "compiled" in name else layer
        steps[name] = step_of(model, [x, *layer.parameters()], x, grad)
    against = {"flipout": "shared", "flipout compiled": "flipout"}
    yield from rows(f"{case} captured", measure_captured(steps), against, dtype="bfloat16")
