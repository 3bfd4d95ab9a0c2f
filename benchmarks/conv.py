"""A convolution, forward and backward, in fp32."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import nn

import flipout

from .record import Row
from .step import compare


def run() -> Iterator[Row]:
    from bayesian_torch.layers import Conv2dFlipout  # pyright: ignore[reportMissingImports]

    yield from compare(
        "conv2d 64×28×28 32→64 5×5",
        partial(flipout.nn.Conv2d, 32, 64, 5),
        nn.Conv2d(32, 64, 5),
        partial(Conv2dFlipout(32, 64, 5), return_kl=False),
        torch.randn(64, 32, 28, 28),
    )
