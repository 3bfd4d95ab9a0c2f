"""Models and training steps for one process and for several."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import flipout
from flipout.bayes import ELBO, Normal, ScaleMixture

STEPS = 3
TOKENS = torch.arange(8 * 5).view(8, 5).square() % 7
TARGETS = torch.arange(8) % 7
X = torch.linspace(-1, 1, 32, dtype=torch.float64).view(8, 4).sin()
PRIORS = {
    "closed form": Normal(0.0, torch.tensor([0.5]), learn_scale=True),  # fully_shard takes no scalar Parameters
    "Monte Carlo": ScaleMixture(0.5, 1.0, 0.1),
}


class Reader(nn.Module):
    """A recurrent net whose decoder is tied to its embedding, including the padding row."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 6, padding_idx=0)
        self.lstm = nn.LSTM(6, 6, batch_first=True)
        self.hidden = nn.Linear(6, 6)
        self.decoder = nn.Linear(6, 7, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.decoder(self.hidden(self.lstm(self.embedding(tokens))[0][:, -1]).tanh())


def reader(prior: Any = PRIORS["closed form"], **options: Any) -> Any:
    torch.manual_seed(5)
    return flipout.perturb(Reader().double(), flipout.MeanField(std=0.3, prior=prior), **options)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))

    def forward(self, x: Tensor) -> Any:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # pyright: ignore[reportAssignmentType]
        return x


def checkpointed() -> Any:
    torch.manual_seed(5)
    return flipout.perturb(Checkpointed().double(), flipout.MeanField(std=0.3), where="*", share_base=True)


def elbo_of(model: nn.Module) -> ELBO:
    return ELBO(model, "categorical", num_data=80, kl_weight=3.0)


def dyadic(**options: Any) -> Any:
    """Return a net whose numbers are small multiples of powers of two, so that no sum is ever rounded."""
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            numbers = (torch.arange(parameter.numel()) * (2 * i + 3)) % 17 - 8
            parameter.copy_(numbers.view_as(parameter) / 16)
    return flipout.perturb(model, flipout.Rademacher(0.25), where="*", **options)


DYADIC_X = ((torch.arange(32) * 5) % 13 - 6).double().view(8, 4) / 8


def train(elbo: ELBO, optimizer: torch.optim.Optimizer, rows: slice, steps: int = STEPS) -> list[Tensor]:
    """Return (loss, KL) of each step. Every step has a fresh draw."""
    history = []
    for _ in range(steps):
        terms = elbo(TOKENS[rows], TARGETS[rows])
        optimizer.zero_grad()
        terms.loss.backward()
        optimizer.step()
        history.append(torch.stack((terms.loss, terms.kl)).detach())
    return history


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), 0.05)
