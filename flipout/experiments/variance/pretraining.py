"""Partially trained networks: trained to a certain training accuracy, then frozen and perturbed."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import flipout
from flipout.errors import RunError

from .. import data
from ..data import Images
from ..running.experiment import check_least
from ..running.results import Number
from ..running.runs import Run
from ..training import networks


@dataclass(frozen=True)
class Pretraining:
    """Adam on batches drawn with replacement, until the network classifies the share `accuracy` of the training set."""

    network: Literal["fc", "convgg"] = "fc"
    hidden: tuple[int, ...] = (512, 512)  # widths of the hidden layers of fc
    width: float = 1.0  # scale of convgg
    data: Literal["mnist", "cifar10", "digits"] = "mnist"
    embedded: bool = False  # use digits instead of downloading data
    noise: bool = False  # train under flipout, with the noise that is measured
    accuracy: float = 0.85
    learning_rate: float = 1e-4
    batch: int = 128
    every: int = 10  # steps between two measurements of the accuracy
    most: int = 20_000  # steps before giving up

    def __post_init__(self) -> None:
        check_least(self, "pretraining.", batch=1, every=1, most=1)

    def freeze(self, std: float, run: Run, name: str = "") -> "Frozen":
        """Return the network, trained once per run, with multiplicative Gaussian noise of `std` on its weights."""
        return _freeze(self, std, run, name)


@dataclass(frozen=True, eq=False)
class Frozen:
    """A partially trained network, the source of its batches, and how it was trained."""

    model: nn.Module
    data: Any  # in the form that `flipout.variance.measure` takes
    setting: str
    reached: dict[str, Number]
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy


def _freeze(config: Pretraining, std: float, run: Run, name: str) -> Frozen:
    images = data.images(config.data, embedded=config.embedded)
    x, y = data.standardised(images.x_train).to(run.device), images.y_train.to(run.device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed_of(f"{name}network"))
        model = _network(config, images).eval().to(run.device)
    if config.network == "convgg" and run.device.type == "cuda":
        model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        x = x.to(memory_format=torch.channels_last)
    flipout.perturb(model, flipout.MultiplicativeGaussian(std=std))
    model.load_state_dict(run.tensors(f"{name}network", lambda: _train(model, x, y, config, run, name)))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("weight"))
    reached = networks.accuracy(model, x, y)
    size = sum(parameter.numel() for parameter in model.parameters())
    noise = "under flipout with the noise that is measured" if config.noise else "without noise"
    setting = (
        f"{images.source}; {config.network} with {size:,} parameters, trained {noise} by Adam "
        f"({config.learning_rate:g}, batches of {config.batch}) to {reached:.1%} training accuracy, then frozen."
    )
    return Frozen(model, (x, y), setting, {"training accuracy": reached})


def _network(config: Pretraining, images: Images) -> nn.Module:
    channels, height, width = images.x_train.shape[1:]
    if config.network == "fc":
        return networks.fc(channels * height * width, config.hidden, len(images.classes))
    return networks.convgg(len(images.classes), config.width, channels)


def _train(model: nn.Module, x: Tensor, y: Tensor, config: Pretraining, run: Run, name: str) -> dict[str, Tensor]:
    generator = run.generator(f"{name}network")
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    step, reached = 0, 0.0
    for step in run.progress.track(range(1, config.most + 1), f"train to {config.accuracy:.0%}", most=True):
        chosen = torch.randint(len(x), (config.batch,), generator=generator).to(x.device)
        optimizer.zero_grad()
        seed = int(torch.randint(2**62, (), generator=generator))
        with flipout.hold(model, seed=seed) if config.noise else nullcontext():
            loss = cross_entropy(model(x[chosen]), y[chosen])
        loss.backward()
        optimizer.step()
        if step % config.every == 0:
            reached = networks.accuracy(model, x, y)
            run.log(step, loss=float(loss.detach()), accuracy=reached)
            if reached >= config.accuracy:
                return model.state_dict()
    raise RunError(
        f"{config.network} reached {reached:.1%} of the training set in {step} steps, not {config.accuracy:.0%}: give "
        "another --pretraining.learning-rate, or a lower --pretraining.accuracy."
    )
