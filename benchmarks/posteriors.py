"""What structured posteriors cost: one linear layer, training and inference, against the plain layer and two flips.

The processor's time is measured, which other work on the machine changes less than wall time.
"""

import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import flipout
from flipout import bayes

from .record import Row, interleaved, rows
from .step import step

EXAMPLES, WIDTH, RANK = 256, 512, 4


def run() -> Iterator[Row]:
    x = torch.randn(EXAMPLES, WIDTH, requires_grad=True)
    grad, case = torch.randn_like(x), f"posteriors {EXAMPLES} {WIDTH}→{WIDTH}"
    by_name = layers()
    against = dict.fromkeys(list(by_name)[1:], "plain")
    runs = {name: step(layer, x, grad) for name, layer in by_name.items()}
    yield from rows(case, interleaved(runs, seconds=15, clock=time.process_time), against)
    measured = interleaved(
        {name: sampled(layer, x) for name, layer in by_name.items()}, seconds=15, clock=time.process_time
    )
    yield from rows(f"{case}, without gradients", measured, against)


class TwoFlips(nn.Linear):
    """The plain layer between two flips by ready signs: what any sign flips and scales cost at least."""

    def __init__(self, width: int, examples: int) -> None:
        super().__init__(width, width)
        self.s, self.r = (2.0 * torch.randint(2, (examples, width)) - 1 for _ in range(2))

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input * self.s) * self.r


def layers() -> dict[str, Callable[[Tensor], Tensor]]:
    """Return the plain layer, the same between two flips, and the layer under each posterior."""

    def linear() -> nn.Linear:
        return nn.Linear(WIDTH, WIDTH)

    return {
        "plain": linear(),
        "two flips": TwoFlips(WIDTH, EXAMPLES),
        "rank_one": bayes.rank_one(linear()),
        "MeanField": flipout.perturb(linear(), flipout.MeanField()),
        f"LowRankNormal({RANK})": flipout.perturb(linear(), flipout.LowRankNormal(rank=RANK)),
    }


def sampled(layer: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], None]:
    """Return a forward pass without gradients, with noise if there is any."""

    def run() -> None:
        with torch.no_grad():
            layer(x)

    return run
