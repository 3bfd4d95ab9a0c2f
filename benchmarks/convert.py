"""The time that `perturb` takes on a large model, and a check that it copies no weight."""

import time
from collections.abc import Iterator

from torch import nn

import flipout

from .record import Row, rows


def run() -> Iterator[Row]:
    model = nn.Sequential(*[nn.Linear(2048, 2048, bias=False) for _ in range(24)])
    size = sum(parameter.numel() for parameter in model.parameters())
    before = [parameter.data_ptr() for parameter in model.parameters()]
    begin = time.perf_counter()
    flipout.perturb(model, flipout.MultiplicativeGaussian(1.0))
    elapsed = (time.perf_counter() - begin) * 1e3
    assert [parameter.data_ptr() for parameter in model.parameters()] == before, "conversion copied a weight"
    yield from rows(f"perturb a model of {size / 1e6:.0f}M parameters", {"multiplicative flipout": [elapsed]}, {})
