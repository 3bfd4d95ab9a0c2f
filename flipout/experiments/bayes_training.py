"""Bayes by Backprop: a network with a Gaussian posterior, trained on data that stays on the device."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

import flipout
from flipout import bayes

from ..errors import InvalidArgument
from . import data, networks
from .runs import Run


@dataclass(frozen=True)
class BayesTraining:
    """Adam on batches drawn with replacement; of the weights, posterior N(W̄, softplus(ρ)²) and prior N(0, prior²)."""

    network: Literal["fc", "convle"] = "fc"
    hidden: tuple[int, ...] = (512, 512)  # of fc
    width: float = 1.0  # of convle
    data: Literal["mnist", "digits"] = "mnist"
    embedded: bool = False  # digits stand in for data that is not here
    std: float | None = None  # at the start; softplus(−3) unless given
    prior: float = 1.0
    kl_weight: float = 0.1
    learning_rate: float = 3e-3
    batch: int = 8192
    iterations: int = 1000
    precision: Literal["fp32", "tf32"] = "fp32"  # of products on a GPU

    def __post_init__(self) -> None:
        for name in ("batch", "iterations"):
            if getattr(self, name) < 1:
                raise InvalidArgument(f"training.{name}={getattr(self, name)}: expected at least 1.")


@dataclass(frozen=True, eq=False)
class Prepared:
    """The pictures, standardised, on the device."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    classes: int
    source: str


def prepared(config: BayesTraining, run: Run) -> Prepared:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config.precision != "fp32"
    images = data.images(config.data, embedded=config.embedded)
    return Prepared(
        x=data.standardised(images.x_train).to(run.device),
        y=images.y_train.to(run.device),
        x_test=data.standardised(images.x_test, by=images.x_train).to(run.device),
        y_test=images.y_test.to(run.device),
        classes=len(images.classes),
        source=images.source,
    )


class Trainer:
    """One network under one scheme. Those of one `seed` begin alike and see the same batches, whatever their scheme."""

    def __init__(self, config: BayesTraining, given: Prepared, scheme: str, seed: int, run: Run) -> None:
        self.config, self.given = config, given
        torch.manual_seed(run.seed_of(f"network.{seed}"))
        self.model = _network(config, given)
        distribution = flipout.MeanField(std=config.std, prior=bayes.Normal(0.0, config.prior))
        flipout.perturb(self.model, distribution, scheme=scheme)
        self.elbo = bayes.ELBO(
            self.model, "categorical", num_data=len(given.x), kl_weight=config.kl_weight, check=False
        )
        on_gpu = run.device.type == "cuda"
        self.optimizer = torch.optim.Adam(self.model.parameters(), config.learning_rate, capturable=on_gpu)
        self.batches = run.generator(f"batches.{seed}")
        self.step = flipout.capture(self._step)
        torch.manual_seed(run.seed_of(f"draws.{scheme}.{seed}"))

    def train(self, iterations: int) -> Tensor:
        """(iterations, 2): the loss's two terms, negative log-likelihood and weighted KL, per example."""
        shape, device = (iterations, self.config.batch), self.given.x.device
        chosen = torch.randint(len(self.given.x), shape, generator=self.batches).to(device)
        terms = torch.empty(iterations, 2, device=device)
        for i, some in enumerate(chosen):
            terms[i] = self.step(some)
        return terms

    @torch.no_grad()
    def terms(self, x: Tensor, y: Tensor, scheme: str = "flipout") -> Tensor:
        """(2,): both terms at the posterior as it is. Their expectation is the same under every scheme."""
        with flipout.using(self.model, scheme=scheme):
            return self._terms(self.elbo(x, y))

    def error(self, x: Tensor, y: Tensor) -> float:
        """Of the network at the mean weights."""
        self.model.eval()
        wrong = 1 - networks.accuracy(self.model, x, y)
        self.model.train()
        return wrong

    def close(self) -> None:
        """Give the memory of a captured step back."""
        self.step.close()

    def _step(self, chosen: Tensor) -> Tensor:
        found = self.elbo(self.given.x[chosen], self.given.y[chosen])
        self.optimizer.zero_grad()
        found.loss.backward()
        self.optimizer.step()
        return self._terms(found)

    def _terms(self, found: bayes.Terms) -> Tensor:
        per_example = -found.log_likelihood / found.examples, found.kl_weight * found.kl / found.num_data
        return torch.stack(per_example).detach()


def own_randomness(run: Run) -> AbstractContextManager[None]:
    """Afterwards torch's generators are as they were."""
    return torch.random.fork_rng(devices=[run.device] if run.device.type == "cuda" else [])


def _network(config: BayesTraining, given: Prepared) -> nn.Module:
    channels, high, wide = given.x.shape[1:]
    if config.network == "fc":
        return networks.fc(channels * high * wide, config.hidden, given.classes).to(given.x.device)
    made = networks.convle((channels, high, wide), given.classes, config.width)
    return made.to(given.x.device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
