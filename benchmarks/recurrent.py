"""LSTM over sequences, forward + backward, fp32, against torch.nn.LSTM: noise on hidden-to-hidden, or on both."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import flipout

from .record import Row, interleaved, rows
from .step import DISTRIBUTIONS

SHAPES = ((32, 35, 256),)
WHERE = {"hh": "weight_hh*", "ih and hh": "weight_*"}


def step(layer: nn.Module, x: Tensor, grad: Tensor) -> Callable[[], None]:
    def run() -> None:
        layer(x)[0].backward(grad)

    return run


def run() -> Iterator[Row]:
    for batch, time, hidden in SHAPES:
        x, grad = torch.randn(time, batch, hidden, requires_grad=True), torch.randn(time, batch, hidden)
        layers: dict[str, nn.Module] = {"plain": nn.LSTM(hidden, hidden)}
        for name in ("multiplicative", "dropconnect", "mean-field"):
            for scheme in ("shared", "flipout"):
                for what, where in WHERE.items() if name == "multiplicative" else [("hh", WHERE["hh"])]:
                    lstm = nn.LSTM(hidden, hidden)
                    layers[f"{name} {scheme} {what}"] = flipout.perturb(
                        lstm, DISTRIBUTIONS[name], scheme=scheme, where=where
                    )
        measured = interleaved({name: step(layer, x, grad) for name, layer in layers.items()}, seconds=20)
        against = {name: "plain" for name in layers if name != "plain"}
        yield from rows(f"lstm {batch} × {time} × {hidden}", measured, against)
