"""The four methods: their trained networks, and the probabilities that they give pictures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from flipout import bayes

from ..running.runs import Run
from ..training.supervised import Prepared, autocast, isolated_randomness
from .networks import dropout_on
from .training import ShiftTraining, bayes_network, plain_network, train_plain, train_posterior

_ROWS = 1000  # pictures of one pass at prediction


@dataclass(frozen=True)
class ShiftMethod:
    """The networks of a method, on the device, and how one of them predicts: (N, classes) for pictures x."""

    networks: tuple[nn.Module, ...]
    probabilities: Callable[[nn.Module, Tensor], Tensor]

    def predict(self, training: ShiftTraining, x: Tensor) -> Tensor:
        """Return the probabilities of each network, (networks, N, classes)."""
        with torch.no_grad(), autocast(training, x.device):
            return torch.stack([self.probabilities(network, x) for network in self.networks])


def all_methods(
    training: ShiftTraining, members: int, samples: int, prepared: Prepared, run: Run
) -> dict[str, ShiftMethod]:
    """Return the methods by name. Networks are trained unless the run has them.

    The first member of the ensemble is the plain network.
    """
    trained = [_trained(training, f"network.{number}", 0.0, prepared, run) for number in range(members)]
    with_dropout = _trained(training, "network.dropout", training.rate, prepared, run)
    posterior = run.tensors("network.flipout", lambda: _posterior(training, trained[0], prepared, run))

    plain = tuple(_loaded(plain_network(training, prepared), state).eval() for state in trained)
    dropout = _loaded(plain_network(training, prepared, training.rate), with_dropout)
    dropout_on(dropout)
    noisy = _loaded(bayes_network(training, prepared), posterior)
    return {
        "plain": ShiftMethod(plain[:1], _once),
        "dropout": ShiftMethod((dropout,), partial(_averaged, samples=samples)),
        "flipout": ShiftMethod((noisy,), partial(_sampled, samples=samples)),
        "ensemble": ShiftMethod(plain, _once),
    }


def _trained(training: ShiftTraining, piece: str, rate: float, prepared: Prepared, run: Run) -> dict[str, Tensor]:
    def train() -> dict[str, Tensor]:
        with isolated_randomness(run):
            torch.manual_seed(run.seed_of(piece))
            return train_plain(training, prepared, plain_network(training, prepared, rate), piece, run)

    return run.tensors(piece, train)


def _posterior(
    training: ShiftTraining, trained: Mapping[str, Tensor], prepared: Prepared, run: Run
) -> dict[str, Tensor]:
    with isolated_randomness(run):
        torch.manual_seed(run.seed_of("network.flipout"))
        return train_posterior(training, prepared, trained, "network.flipout", run)


def _loaded(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    model.load_state_dict(state)
    return model


def _once(network: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([network(part).float().softmax(1) for part in x.split(_ROWS)])


def _averaged(network: nn.Module, x: Tensor, samples: int) -> Tensor:
    """Return the mean over passes of MC dropout."""
    return torch.stack([_once(network, x) for _ in range(samples)]).mean(0)


def _sampled(network: nn.Module, x: Tensor, samples: int) -> Tensor:
    """Return the mean over samples of the weights."""
    return bayes.predict(network, x, samples, likelihood="categorical", chunk=_ROWS, keep=False).mean.float()
