"""Bayes by Backprop: a network with a Gaussian posterior, trained on data that stays on the device."""

from dataclasses import dataclass

import torch
from torch import Tensor

import flipout
from flipout import bayes

from ..running.experiment import check_least
from ..running.runs import Run
from . import networks
from .supervised import Prepared, Supervised, network


@dataclass(frozen=True)
class BayesTraining(Supervised):
    """Adam on batches drawn with replacement; of the weights, posterior N(W̄, softplus(ρ)²) and prior N(0, prior²)."""

    std: float | None = None  # at the start; softplus(−3) unless given
    prior: float = 1.0
    kl_weight: float = 0.1
    learning_rate: float = 3e-3
    batch: int = 8192
    iterations: int = 1000

    def __post_init__(self) -> None:
        check_least(self, "training.", batch=1, iterations=1)


class Trainer:
    """One network under one scheme. Those of one `seed` begin alike and see the same batches, whatever their scheme."""

    def __init__(self, config: BayesTraining, given: Prepared, scheme: str, seed: int, run: Run) -> None:
        self.config, self.given = config, given
        torch.manual_seed(run.seed_of(f"network.{seed}"))
        self.model = network(config, given)
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
