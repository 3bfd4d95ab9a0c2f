"""Fitnesses whose gradient is known: a linear one, and the log-likelihood of small networks on one batch."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flipout.es import Population

from ... import data
from ...running.runs import Run
from ...training import networks

LINEAR = "linear"
INPUTS, OUTPUTS = 24, 16  # of the linear fitness: 384 weights


@dataclass(frozen=True)
class TaskConfig:
    """Networks and their data. Without the files of MNIST and the Penn Treebank, `embedded` data takes their place."""

    data: str = "mnist"
    text: str = "ptb_characters"
    embedded: bool = False
    hidden: tuple[int, ...] = (128,)  # of the fully connected network
    width: int = 32  # of the LSTM and the transformer
    batch: int = 32
    window: int = 16  # characters


@dataclass(frozen=True, eq=False)
class NoiseTask:
    """A model, a batch that all members see, and the loss of outputs, (members, batch)."""

    model: nn.Module
    x: Tensor
    y: Tensor
    source: str

    def fitness(self, population: Population) -> Tensor:
        """Return the mean log-likelihood of each member on the batch."""
        x = self.x.expand(population.size, *self.x.shape)
        return self._score(population(x, batched=True).flatten(0, 1), population.size)

    def gradient(self) -> dict[str, Tensor]:
        """Return the gradient of the fitness at the model's weights, by backpropagation."""
        self.model.eval()
        score = self._score(self.model(self.x), 1).sum()
        named = dict(self.model.named_parameters())
        return dict(zip(named, torch.autograd.grad(score, list(named.values())), strict=True))

    def _score(self, outputs: Tensor, members: int) -> Tensor:
        logits, target = outputs.flatten(0, -2), self.y.flatten().repeat(members)
        return -F.cross_entropy(logits, target, reduction="none").view(members, -1).mean(1)


class LinearTask(NoiseTask):
    """The fitness C · W of a layer without bias, whose weights start at 0. Its gradient is C."""

    def _score(self, outputs: Tensor, members: int) -> Tensor:
        return (outputs.view(members, *self.y.shape) * self.y).sum((1, 2))


class Encoder(nn.Module):
    """A transformer that predicts the character after a window."""

    def __init__(self, words: int, width: int, window: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.register_buffer("place", 0.1 * torch.randn(window, width))
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.decoder = nn.Linear(width, words)

    def forward(self, words: Tensor) -> Tensor:
        return self.decoder(self.encoder(self.embedding(words) + self.place)[:, -1:])


def make_task(config: TaskConfig, name: str, run: Run) -> NoiseTask:
    """Return one of the tasks, with weights and a batch of the run's seed."""
    generator = run.generator(f"batch.{name}")
    torch.manual_seed(run.seed_of(f"network.{name}"))
    if name == LINEAR:
        model = nn.Linear(INPUTS, OUTPUTS, bias=False)
        nn.init.zeros_(model.weight)
        target = torch.randn(INPUTS, OUTPUTS, generator=generator)
        return LinearTask(model.to(run.device), torch.eye(INPUTS, device=run.device), target.to(run.device), "")
    if name == "fc":
        images = data.images(config.data, embedded=config.embedded)
        chosen = torch.randint(len(images.x_train), (config.batch,), generator=generator)
        x = data.standardised(images.x_train[chosen], by=images.x_train).flatten(1)
        model: Any = networks.fc(x.shape[1], config.hidden, len(images.classes))[1:]
        return NoiseTask(model.to(run.device), x.to(run.device), images.y_train[chosen].to(run.device), images.source)
    text = data.text(config.text, embedded=config.embedded)
    first = torch.randint(len(text.train) - config.window - 1, (config.batch, 1), generator=generator)
    windows = text.train[first + torch.arange(config.window + 1)]
    words = len(text.vocabulary)
    if name == "lstm":
        model, y = networks.LanguageModel(words, config.width, config.width, 1, tied=False), windows[:, 1:]
    else:
        model, y = Encoder(words, config.width, config.window), windows[:, -1:]
    return NoiseTask(model.to(run.device), windows[:, :-1].to(run.device), y.to(run.device), text.source)
