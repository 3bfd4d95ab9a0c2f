"""The host's work for a training step of a layer on a GPU: Python, torch's dispatch, Triton's launches.

The layer is tiny and Triton launches on no device, so that nothing is computed. The launches of torch's own operations
on a GPU come on top.
"""

import ctypes
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import nn

import flipout

from . import no_device
from .record import Row, interleaved, rows
from .step import step_of

EXAMPLES, WIDTH = 32, 16


def run() -> Iterator[Row]:
    torch.set_num_threads(1)
    launches = ctypes.c_long.in_dll(no_device.use(), "launches")
    x = torch.randn(EXAMPLES, WIDTH, requires_grad=True)
    grad = torch.randn(EXAMPLES, WIDTH)
    layers: dict[str, nn.Module] = {"plain": nn.Linear(WIDTH, WIDTH)}
    for scheme in ("shared", "flipout"):
        layers[scheme] = flipout.nn.Linear(WIDTH, WIDTH, distribution=flipout.MeanField(), scheme=scheme)
    steps = {name: step_of(layer, [x, *layer.parameters()], x, grad) for name, layer in layers.items()}
    if find_spec("bayesian_torch") is not None:
        rival = import_module("bayesian_torch.layers").LinearFlipout(WIDTH, WIDTH)
        steps["bayesian-torch"] = step_of(partial(rival, return_kl=False), [x, *rival.parameters()], x, grad)
    against = dict.fromkeys(list(steps)[1:], "plain")
    yield from rows("host: linear step", interleaved(steps, seconds=4), against)
    counts: dict[str, list[float]] = {}
    for name, step in steps.items():
        before = launches.value
        step()
        counts[name] = [float(launches.value - before)]
    yield from rows("host: linear step, launches by Triton", counts, {}, what="count")
