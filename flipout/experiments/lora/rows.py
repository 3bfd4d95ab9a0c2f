"""The rows of both tables: how an adapter is trained, under which noise, and which adapters answer together."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

import flipout
from flipout import bayes

from ..running.runs import Run
from .per_token import posterior_layers, signs_per_token
from .settings import AdapterSettings

ROWS = ("lora", "decay", "dropout", "ensemble", "shared", "per-token", "flipout", "training-free")
TITLES = {
    "lora": "LoRA",
    "decay": "LoRA, weight decay tuned",
    "dropout": "MC dropout on LoRA",
    "ensemble": "ensemble of LoRA",
    "shared": "Bayesian LoRA, shared",
    "per-token": "Bayesian LoRA, signs per token (published way)",
    "flipout": "Bayesian LoRA, flipout",
    "training-free": "training-free spread",
}
BAYESIAN = ("shared", "per-token", "flipout")


class Learner(ABC):
    """One adapter that is trained, or was."""

    def __init__(self, config: AdapterSettings, row: str, name: str, run: Run) -> None:
        self.config, self.row, self.run, self.name = config, row, run, name
        # What is trained, and the PEFT model in it, which may be the same.
        self.model, self.adapted = self.make(config.dropout if row == "dropout" else 0.0)
        if row in BAYESIAN:
            scheme: Any = "shared" if row == "shared" else "flipout"
            flipout.peft.bayesian_lora(self.adapted, std=config.std, prior_std=config.prior_std, scheme=scheme)

    @abstractmethod
    def make(self, dropout: float) -> tuple[Any, Any]:
        """Return the model, and the PEFT model in it, on the device of the run."""

    @abstractmethod
    def loss(self, batch: Any) -> Tensor:
        """Return the mean loss of the items of a batch."""

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def optimizer(self, decay: float = 0.0) -> torch.optim.Optimizer:
        groups = (
            flipout.parameter_groups(self.model, weight_decay=decay)
            if self.row in BAYESIAN
            else [{"params": list(self.trained.values()), "weight_decay": decay}]
        )
        return torch.optim.AdamW(groups, self.config.learning_rate)

    def step(self, batch: Any, optimizer: torch.optim.Optimizer, num_data: int) -> Tensor:
        """Take one step of the optimiser, and return the loss."""
        loss = self.loss(batch)
        if self.row in BAYESIAN:
            loss = loss + self.config.kl_weight * bayes.kl(self.model) / num_data
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    def train(self, data: Any, decay: float = 0.0) -> dict[str, Tensor]:
        """Train the adapter, and return what it learned.

        Args:
            data: The training set, which has a length and `items`, and is indexed by rows.
            decay: The weight decay.
        """
        config, generator = self.config, self.run.generator(f"{self.name}.batches")
        optimizer, num_data = self.optimizer(decay), data.items
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, config.steps)
        self.model.train()
        with self.randomness(), self.noise():
            for step in self.run.progress.track(range(config.steps), self.name):
                chosen = torch.randint(len(data), (config.batch,), generator=generator)
                loss = self.step(data[chosen], optimizer, num_data)
                schedule.step()
                if step % 20 == 19 or step == config.steps - 1:
                    self.run.log(step + 1, loss=float(loss))
        self.model.eval()
        return {name: p.detach() for name, p in self.trained.items()}

    def restore(self, learned: dict[str, Tensor]) -> None:
        """Load the Parameters that a training has learned."""
        with torch.no_grad():
            for name, parameter in self.trained.items():
                parameter.copy_(learned[name])
        self.model.eval()

    @contextmanager
    def answering(self) -> Iterator[int]:
        """Prepare for answers of a row that the library does not sample. Yield how many passes are averaged."""
        if self.row == "dropout":
            for module in self.model.modules():
                module.train(isinstance(module, nn.Dropout))
        with self.randomness(), self.noise():
            yield self.config.samples if self.row in ("dropout", "per-token") else 1
        self.model.eval()

    @property
    def is_sampled(self) -> bool:
        """Return True if the library draws the weights of this row's answers."""
        return self.row in ("shared", "flipout", "training-free")

    @contextmanager
    def noise(self) -> Iterator[None]:
        """Replace the library's noise by the published one, in the row of that name."""
        if self.row != "per-token":
            yield
            return
        for layer in posterior_layers(self.model):
            layer.eval()
        with signs_per_token(self.model):
            yield

    @contextmanager
    def randomness(self) -> Iterator[None]:
        """Seed torch's generators by the piece's name, inside the context."""
        devices = [self.run.device] if self.run.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(self.run.seed_of(f"{self.name}.noise") % 2**63)
            yield


@dataclass(frozen=True)
class AdapterStudy:
    """The adapters of a table, each trained once: what is there already is read."""

    config: Any  # AdapterSettings
    run: Run
    make: Callable[[Any, str, str], Any]  # settings, row and name → a learner
    data: Mapping[str, Any]  # "train" and "valid"
    nll: Callable[[list[Any], Any], float]  # of learners together on data
    calibration: Callable[[Any], dict[str, Any]]  # arguments of `fit_spread` for a learner

    def learned(self, row: str, name: str, *, decay: float = 0.0, std: float | None = None) -> Any:
        """Return an adapter, trained now or before."""
        learner = self.make(self.config if std is None else replace(self.config, std=std, other_stds=()), row, name)
        learner.restore(self.run.tensors(f"{name}.learned", lambda: learner.train(self.data["train"], decay)))
        return learner

    def of_row(self, row: str, seed: int) -> list[Any]:
        """Return the adapters whose answers are averaged in one row of the table."""
        config = self.config
        if row == "ensemble":
            names = [f"lora.{seed}", *(f"lora.{seed}.{member}" for member in range(1, config.members))]
            return [self.learned("lora", name) for name in names]
        if row == "decay":
            return [self._best([self.learned(row, f"decay.{seed}.{decay:g}", decay=decay) for decay in config.decays])]
        if row == "training-free":
            learner = self.learned("lora", f"lora.{seed}")
            learner.row = row
            flipout.peft.fit_spread(
                learner.adapted, **self.calibration(learner), tolerance=config.tolerance, prior_std=config.prior_std
            )
            return [learner]
        tried = [self.learned(row, f"{row}.{seed}")]
        if row in BAYESIAN:
            tried += [self.learned(row, f"{row}.{seed}.{std:g}", std=std) for std in config.other_stds]
        return [self._best(tried)]

    def _best(self, tried: list[Any]) -> Any:
        """Return the adapter with the lowest NLL on the validation set."""
        if len(tried) == 1:
            return tried[0]
        losses = [self.nll([learner], self.data["valid"]) for learner in tried]
        return tried[losses.index(min(losses))]
