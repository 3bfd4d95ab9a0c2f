"""Bayes by Backprop: a network with a Gaussian posterior, trained on data that stays on the device."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

import flipout
from flipout import bayes
from flipout.errors import InvalidArgument

from ..running.experiment import check_least
from ..running.runs import Run
from . import networks
from .supervised import Prepared, Supervised, build_network


@dataclass(frozen=True)
class BayesTraining(Supervised):
    """Adam on batches drawn with replacement. Weights have the posterior N(W̄, softplus(ρ)²), the prior N(0, prior²)."""

    start: Literal["torch", "truncated"] = "torch"  # initial means: PyTorch's, or those of `networks.truncated_normal`
    std: float | None = None  # initial standard deviation; softplus(−3) unless given
    relative: float | None = None  # initial standard deviation as a multiple of |W̄|, instead of std
    prior: float = 1.0
    kl_weight: float = 0.1
    learning_rate: float = 3e-3
    batch: int = 8192
    iterations: int = 1000

    def __post_init__(self) -> None:
        check_least(self, "training.", batch=1, iterations=1)
        if self.std is not None and self.relative is not None:
            raise InvalidArgument(
                f"training.std={self.std} and training.relative={self.relative}: expected only one of them."
            )


class BayesTrainer:
    """One network under one scheme. Networks of one `seed` start equal and see the same batches under every scheme."""

    def __init__(self, config: BayesTraining, prepared: Prepared, scheme: Any, seed: int, run: Run) -> None:
        self.config, self.prepared = config, prepared
        torch.manual_seed(run.seed_of(f"network.{seed}"))
        self.model = build_network(config, prepared)
        if config.start == "truncated":
            networks.truncated_normal(self.model)
        prior = bayes.Normal(0.0, config.prior)
        distribution = flipout.MeanField(std=config.std, relative=config.relative, prior=prior)
        flipout.perturb(self.model, distribution, scheme=scheme)
        self.elbo = bayes.ELBO(
            self.model, "categorical", num_data=len(prepared.x), kl_weight=config.kl_weight, check=False
        )
        on_gpu = run.device.type == "cuda"
        self.optimizer = torch.optim.Adam(self.model.parameters(), config.learning_rate, capturable=on_gpu)
        self.batches = run.generator(f"batches.{seed}")
        self.step = flipout.capture(self._step)
        torch.manual_seed(run.seed_of(f"draws.{scheme}.{seed}"))

    def train(self, iterations: int) -> Tensor:
        """Train, and return (iterations, 2): negative log-likelihood and weighted KL of each batch, per example."""
        shape, device = (iterations, self.config.batch), self.prepared.x.device
        chosen = torch.randint(len(self.prepared.x), shape, generator=self.batches).to(device)
        terms = torch.empty(iterations, 2, device=device)
        for i, batch in enumerate(chosen):
            terms[i] = self.step(batch)
        return terms

    @torch.no_grad()
    def terms(self, x: Tensor, y: Tensor, scheme: Any = "flipout") -> Tensor:
        """Return (2,): both terms at the present posterior. Their expectation is the same under every scheme."""
        with flipout.using(self.model, scheme=scheme):
            return self._per_example(self.elbo(x, y))

    def error(self, x: Tensor, y: Tensor) -> float:
        """Return the share of wrong answers at the mean weights."""
        self.model.eval()
        error = 1 - networks.accuracy(self.model, x, y)
        self.model.train()
        return error

    def close(self) -> None:
        """Free the memory of the captured step."""
        self.step.close()

    def _step(self, chosen: Tensor) -> Tensor:
        terms = self.elbo(self.prepared.x[chosen], self.prepared.y[chosen])
        self.optimizer.zero_grad()
        terms.loss.backward()
        self.optimizer.step()
        return self._per_example(terms)

    def _per_example(self, terms: bayes.Terms) -> Tensor:
        per_example = -terms.log_likelihood / terms.examples, terms.kl_weight * terms.kl / terms.num_data
        return torch.stack(per_example).detach()
