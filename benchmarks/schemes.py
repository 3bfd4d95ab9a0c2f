"""Every scheme on one linear layer, forward and backward."""

from collections.abc import Iterator

import torch

import flipout

from .gpu import replayed, timed
from .record import Row, interleaved, rows
from .step import step

EXAMPLES, WIDTH, NOISE = 256, 512, flipout.Gaussian(0.1)
SCHEMES = {
    "shared": flipout.Shared(),
    "flipout": flipout.Flipout(),
    "flipout group 32": flipout.Flipout(group=32),
    "flipout group 8": flipout.Flipout(group=8),
    "low_rank(1)": flipout.LowRank(1),
    "rank_one": flipout.RankOne(),
    "local_reparam": flipout.LocalReparam(),
    "independent": flipout.Independent(),
}


def run() -> Iterator[Row]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x = torch.randn(EXAMPLES, WIDTH, device=device, dtype=dtype, requires_grad=True)
    grad, against = torch.randn_like(x), dict.fromkeys(list(SCHEMES)[1:], "shared")
    case = f"schemes {EXAMPLES} {WIDTH}→{WIDTH}"
    layers = {
        name: flipout.nn.Linear(WIDTH, WIDTH, distribution=NOISE, scheme=scheme).to(x)
        for name, scheme in SCHEMES.items()
    }
    runs = {name: step(layer, x, grad) for name, layer in layers.items()}
    if device == "cpu":
        yield from rows(case, interleaved(runs, seconds=20), against)
        return
    graphs = {name: replayed(run) for name, run in runs.items()}
    measured = interleaved({name: timed(graph) for name, graph in graphs.items()}, seconds=3)
    yield from rows(f"{case} captured", measured, against, dtype="bfloat16")
