"""Train a network on pictures: by its likelihood alone, or by the bound of a posterior around trained weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import flipout
from flipout import bayes

from ..running.experiment import check_least
from ..running.runs import Run
from ..training.supervised import Prepared, autocast
from .networks import moved, resnet


@dataclass(frozen=True)
class ShiftTraining:
    """A network, and how it is trained. `precision` is of products on a GPU."""

    width: int = 64
    blocks: int = 2
    epochs: int = 20
    bayes_epochs: int = 6  # of the posterior, from trained weights on
    batch: int = 512
    learning_rate: float = 0.4  # of SGD with momentum; rises for a fifth of the steps, then falls to 0
    bayes_rate: float = 1e-4  # of Adam, for the means
    spread_rate: float = 1e-2  # of Adam, for ρ, the softplus inverse of a standard deviation
    decay: float = 5e-4
    rate: float = 0.1  # of dropout
    relative: float = 0.2  # initial standard deviation of the posterior, relative to the trained weight
    prior: float = 0.1
    kl_weight: float = 0.1
    moved: bool = True  # shift and mirror the pictures of a batch
    precision: str = "bf16"

    def __post_init__(self) -> None:
        check_least(self, "training.", width=1, blocks=1, epochs=1, bayes_epochs=1, batch=2)


def plain_network(config: ShiftTraining, prepared: Prepared, rate: float = 0.0) -> nn.Sequential:
    model = resnet(prepared.x.shape[1], prepared.classes, config.width, config.blocks, rate)
    return model.to(prepared.x.device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def bayes_network(
    config: ShiftTraining, prepared: Prepared, trained: Mapping[str, Tensor] | None = None
) -> nn.Sequential:
    """Return a network whose convolutions and last layer have a Gaussian posterior under flipout.

    The means are the trained weights, if there are any, and the spreads are a share of them.
    """
    model = plain_network(config, prepared)
    if trained is not None:
        model.load_state_dict(trained)
    posterior = flipout.MeanField(relative=config.relative, prior=bayes.Normal(0.0, config.prior))
    return flipout.perturb(model, posterior, scheme="flipout")


def train_plain(config: ShiftTraining, prepared: Prepared, model: nn.Module, piece: str, run: Run) -> dict[str, Tensor]:
    def loss(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(x).float(), y)

    # The learning rate belongs to batches of 512.
    rate = config.learning_rate * config.batch / 512
    optimizer = torch.optim.SGD(model.parameters(), rate, 0.9, weight_decay=config.decay, nesterov=True)
    return _train(config, prepared, model, loss, optimizer, config.epochs, piece, run)


def train_posterior(
    config: ShiftTraining, prepared: Prepared, trained: Mapping[str, Tensor], piece: str, run: Run
) -> dict[str, Tensor]:
    """Start from trained weights, and learn means and spreads."""
    model = bayes_network(config, prepared, trained)
    elbo = bayes.ELBO(model, "categorical", num_data=len(prepared.x), kl_weight=config.kl_weight, check=False)
    spreads = [parameter for name, parameter in model.named_parameters() if name.endswith("_rho")]
    means = [parameter for name, parameter in model.named_parameters() if not name.endswith("_rho")]
    optimizer = torch.optim.Adam([{"params": means}, {"params": spreads, "lr": config.spread_rate}], config.bayes_rate)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return elbo(x, y).loss

    return _train(config, prepared, model, loss, optimizer, config.bayes_epochs, piece, run)


def rise_and_fall(time: float) -> float:
    """Return the share of the learning rate at a time from 0 to 1: it rises for a fifth, then falls to 0."""
    return min(5 * time, (1 - time) / 0.8)


def _train(
    config: ShiftTraining,
    prepared: Prepared,
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    optimizer: Any,
    epochs: int,
    piece: str,
    run: Run,
) -> dict[str, Tensor]:
    generator = run.generator(f"{piece}.batches")
    batches = max(len(prepared.x) // config.batch, 1)
    steps = epochs * batches
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rise_and_fall((step + 1) / (steps + 1)))
    model.train()
    for epoch in run.progress.track(range(epochs), piece):
        order = torch.randperm(len(prepared.x), generator=generator).to(prepared.x.device)
        total = torch.zeros((), device=prepared.x.device)
        for chosen in order[: batches * config.batch].chunk(batches):
            x, y = prepared.x[chosen], prepared.y[chosen]
            with autocast(config, run.device):
                value = loss(moved(x, generator) if config.moved else x, y)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            schedule.step()
            total += value.detach() / batches
        run.log(epoch + 1, loss=float(total))
    # A file of tensors needs them contiguous, which channels-last kernels are not.
    return {name: value.contiguous() for name, value in model.state_dict().items()}
