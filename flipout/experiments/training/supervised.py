"""Pictures, and a network that is to name them, on the device."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from .. import data
from ..running.runs import Run
from . import networks


class Precise(Protocol):
    @property
    def precision(self) -> str: ...


@dataclass(frozen=True)
class Supervised:
    """What is learned from which data; how, a training adds to it."""

    network: Literal["fc", "convle"] = "fc"
    hidden: tuple[int, ...] = (512, 512)  # of fc
    width: float = 1.0  # of convle
    data: Literal["mnist", "digits"] = "mnist"
    embedded: bool = False  # digits stand in for data that is not here
    precision: Literal["fp32", "tf32"] = "fp32"  # of products on a GPU


@dataclass(frozen=True, eq=False)
class Prepared:
    """The pictures, standardised, on the device."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    classes: int
    source: str


def prepared(config: Supervised, run: Run) -> Prepared:
    set_precision(config)
    images = data.images(config.data, embedded=config.embedded)
    return Prepared(
        x=data.standardised(images.x_train).to(run.device),
        y=images.y_train.to(run.device),
        x_test=data.standardised(images.x_test, by=images.x_train).to(run.device),
        y_test=images.y_test.to(run.device),
        classes=len(images.classes),
        source=images.source,
    )


def set_precision(config: Precise) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config.precision != "fp32"


def autocast(config: Precise, device: torch.device) -> AbstractContextManager[Any]:
    """Products in bf16, where that is asked for and the device is a GPU."""
    half = config.precision == "bf16" and device.type == "cuda"
    # A cache of casts would be captured by the first graph, and be stale in the others.
    return torch.autocast("cuda", torch.bfloat16, cache_enabled=False) if half else nullcontext()


def network(config: Supervised, given: Prepared, unit: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    channels, high, wide = given.x.shape[1:]
    if config.network == "fc":
        return networks.fc(channels * high * wide, config.hidden, given.classes, unit).to(given.x.device)
    made = networks.convle((channels, high, wide), given.classes, config.width, unit)
    return made.to(given.x.device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def own_randomness(run: Run) -> AbstractContextManager[None]:
    """Afterwards torch's generators are as they were."""
    return torch.random.fork_rng(devices=[run.device] if run.device.type == "cuda" else [])
