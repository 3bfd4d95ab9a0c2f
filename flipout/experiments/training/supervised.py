"""Images and networks that classify them, on the device."""

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
    """Which network learns which data. Subclasses add how it is trained."""

    network: Literal["fc", "convle"] = "fc"
    hidden: tuple[int, ...] = (512, 512)  # widths of the hidden layers of fc
    width: float = 1.0  # scale of convle
    data: Literal["mnist", "digits"] = "mnist"
    embedded: bool = False  # use digits instead of downloading data
    precision: Literal["fp32", "tf32"] = "fp32"  # of matrix products on a GPU


@dataclass(frozen=True, eq=False)
class Prepared:
    """Standardised images on the device."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    classes: int
    source: str


def prepare(config: Supervised, run: Run) -> Prepared:
    """Load the data of a training, and set the precision of its products."""
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
    """Return a context for products in bf16, if the config asks for them and the device is a GPU."""
    in_bf16 = config.precision == "bf16" and device.type == "cuda"
    # A cache of casts would be captured by the first graph, and be stale in the others.
    return torch.autocast("cuda", torch.bfloat16, cache_enabled=False) if in_bf16 else nullcontext()


def build_network(config: Supervised, prepared: Prepared, unit: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    channels, height, breadth = prepared.x.shape[1:]
    if config.network == "fc":
        return networks.fc(channels * height * breadth, config.hidden, prepared.classes, unit).to(prepared.x.device)
    convle = networks.convle((channels, height, breadth), prepared.classes, config.width, unit)
    return convle.to(prepared.x.device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def isolated_randomness(run: Run) -> AbstractContextManager[None]:
    """Return a context that leaves torch's generators as they were."""
    return torch.random.fork_rng(devices=[run.device] if run.device.type == "cuda" else [])
