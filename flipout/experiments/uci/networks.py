"""The network of one split under each method, and the loss that it is trained with."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

import flipout
from flipout import bayes
from flipout.bayes.likelihoods import Gaussian

_SPREAD = 0.05  # initial standard deviation of weights and of scales
_NOISE = 0.5  # initial standard deviation of the targets' noise; the targets are standardised


@dataclass(frozen=True)
class Candidate:
    """The hyperparameters of a network. A method reads those that it has."""

    prior: float = 1.0  # standard deviation of the weights' prior
    rate: float = 0.0  # of dropout
    scales: float = 0.1  # standard deviation of the prior of rank-one scales, around 1


@dataclass(frozen=True)
class UciMethod:
    """What is done to a network, and the candidates that a search chooses from."""

    title: str
    candidates: tuple[Candidate, ...]
    convert: Callable[[nn.Module, Candidate], nn.Module]
    choice: str = ""  # the method whose search chooses for this one too; empty: its own
    members: int = 1


class StackedDropout(nn.Module):
    """Dropout whose rate is a buffer, so that each network of a stack can have its own."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate: Tensor
        self.register_buffer("rate", torch.tensor(rate))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        return x * (torch.rand_like(x) >= self.rate) / (1 - self.rate)


class Objective(nn.Module):
    """The negative log-likelihood per example, plus the price of the weights divided by the number of examples.

    The price is the KL of noisy Parameters, and the penalty of a normal prior for weights without noise. Biases are
    free. `network` and `likelihood` stand beside each other, so that `torch.func.functional_call` can replace both.
    """

    def __init__(self, network: nn.Module, candidate: Candidate, examples: int) -> None:
        super().__init__()
        self.network, self.likelihood, self.examples = network, Gaussian(_NOISE), examples
        parameters = dict(network.named_parameters())
        self.noisy = any(name.endswith("_rho") for name in parameters)
        weights = [name for name in parameters if name.endswith(".weight")]
        self.plain = [name.removesuffix(".weight") for name in weights if f"{name}_rho" not in parameters]
        self.prior: Tensor
        self.register_buffer("prior", torch.tensor(candidate.prior))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        price = bayes.kl(self.network) if self.noisy else torch.zeros(())
        for name in self.plain:
            weight: Tensor = self.network.get_submodule(name).weight  # pyright: ignore[reportAssignmentType]
            price = price + (weight / self.prior).square().sum() / 2
        return price / self.examples - self.likelihood(self.network(x), y).mean()


def objective(method: UciMethod, candidate: Candidate, inputs: int, hidden: int, examples: int) -> Objective:
    """Return one network with one hidden layer, converted by a method, inside of its loss."""
    layers = [nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 1), nn.Flatten(0)]
    network = nn.Sequential(*layers)
    return Objective(method.convert(network, candidate), candidate, examples)


def _plain(network: nn.Module, candidate: Candidate) -> nn.Module:
    return network


def _dropout(network: nn.Module, candidate: Candidate) -> nn.Module:
    """Put dropout before both layers, as Gal and Ghahramani do."""
    first, unit, second, flat = network.children()
    return nn.Sequential(StackedDropout(candidate.rate), first, unit, StackedDropout(candidate.rate), second, flat)


def _mean_field(network: nn.Module, candidate: Candidate, scheme: str) -> nn.Module:
    posterior = flipout.MeanField(std=_SPREAD, prior=bayes.Normal(0.0, candidate.prior))
    return flipout.perturb(network, posterior, scheme=scheme)  # pyright: ignore[reportArgumentType]


def _rank_one(network: nn.Module, candidate: Candidate) -> nn.Module:
    return bayes.rank_one(network, std=_SPREAD, prior=bayes.Normal(1.0, candidate.scales))


# Four candidates for each method. Networks without noise need a narrow prior if there is little data, or the learned
# noise of the targets shrinks to nothing.
_NARROW = tuple(Candidate(prior) for prior in (0.1, 0.15, 0.25, 2.0))
_WIDE = tuple(Candidate(prior) for prior in (0.2, 0.5, 1.0, 5.0))
_RATES = tuple(Candidate(prior, rate) for prior in (0.3, 1.0) for rate in (0.005, 0.05))
_SCALES = tuple(Candidate(prior, scales=scales) for prior in (0.1, 0.3) for scales in (0.1, 0.3))

METHODS: dict[str, UciMethod] = {
    "plain": UciMethod("plain", _NARROW, _plain),
    "dropout": UciMethod("MC dropout", _RATES, _dropout),
    "shared": UciMethod("mean field, shared", _WIDE, partial(_mean_field, scheme="shared"), choice="flipout"),
    "flipout": UciMethod("mean field, flipout", _WIDE, partial(_mean_field, scheme="flipout")),
    "local_reparam": UciMethod(
        "mean field, local", _WIDE, partial(_mean_field, scheme="local_reparam"), choice="flipout"
    ),
    "rank_one": UciMethod("rank-one", _SCALES, _rank_one),
    "ensemble": UciMethod("ensemble of 5", _NARROW, _plain, choice="plain", members=5),
}
SCHEMES = ("shared", "flipout", "local_reparam")  # of one posterior: the search chooses its prior once
