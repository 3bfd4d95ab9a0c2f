"""Linear layers, forward and backward, in fp32."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import nn

import flipout

from .record import Row
from .step import compare

SHAPES = ((32, 64, 64), (256, 512, 512), (1024, 1024, 1024), (8192, 512, 512))


def run() -> Iterator[Row]:
    from bayesian_torch.layers import LinearFlipout  # pyright: ignore[reportMissingImports]

    for examples, fan_in, fan_out in SHAPES:
        rival = partial(LinearFlipout(fan_in, fan_out), return_kl=False)
        yield from compare(
            f"linear {examples} {fan_in}→{fan_out}",
            partial(flipout.nn.Linear, fan_in, fan_out),
            nn.Linear(fan_in, fan_out),
            rival,
            torch.randn(examples, fan_in),
        )
