"""Partially trained word-level language models, frozen and perturbed."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import flipout

from .. import data
from ..language.walks import streams
from ..running.experiment import check_least
from ..running.runs import Run
from ..training.networks import LanguageModel
from .pretraining import Frozen


@dataclass(frozen=True)
class LanguagePretraining:
    """SGD over contiguous windows that carry the state. The LSTM's weights get noise afterwards, or from the start."""

    text: Literal["ptb_words", "embedded_words"] = "ptb_words"
    embedding: int = 650
    hidden: int = 650
    layers: int = 2
    tied: bool = False
    noise: Literal["multiplicative", "dropconnect"] = "multiplicative"
    where: str = "lstm.weight_hh*"
    noisy_training: bool = False  # train under the noise, shared by each mini-batch
    epochs: float = 3.0
    batch: int = 40
    window: int = 35
    learning_rate: float = 30.0
    clip: float = 0.25

    def __post_init__(self) -> None:
        check_least(self, "pretraining.", embedding=1, hidden=1, layers=1, batch=1, window=1)

    def freeze(self, std: float, run: Run, name: str = "") -> Frozen:
        """Return the model, trained once per run. Only the hidden-to-hidden weights of its first layer are measured."""
        text = data.text(self.text)
        train = text.train.to(run.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(run.seed_of(f"{name}network"))
            model = LanguageModel(len(text.vocabulary), self.embedding, self.hidden, self.layers, self.tied)
        model = model.eval().to(run.device)
        noise = flipout.MultiplicativeGaussian(std) if self.noise == "multiplicative" else flipout.DropConnect(0.5)
        if self.noisy_training:
            flipout.perturb(model, noise, scheme="shared", where=self.where)
        weights = run.tensors(f"{name}network", lambda: self._train(model.train(), train, run))
        if self.noisy_training:
            flipout.freeze(model)
        model.eval()
        model.load_state_dict({**weights, **({"decoder.weight": weights["embedding.weight"]} if self.tied else {})})
        flipout.perturb(model, noise, where=self.where)
        for key, parameter in model.named_parameters():
            parameter.requires_grad_(key == "lstm.weight_hh_l0")
        perplexity = float(_loss(model, train[: 20 * self.window * self.batch], self).exp())
        size = sum(parameter.numel() for parameter in model.parameters())
        how = "under that noise" if self.noisy_training else "without noise"
        setting = (
            f"{text.source}; a language model of {self.layers} × {self.hidden} units with {size:,} parameters, trained "
            f"{how} for {self.epochs:g} epochs by SGD ({self.learning_rate:g}, clipped at {self.clip:g}, "
            f"{self.batch} streams, windows of {self.window}) to a training perplexity of {perplexity:.0f}, then "
            f"frozen. {noise} on {self.where}; sequences of {self.window} words start anywhere, from a zero state."
        )
        return Frozen(model, self._batches(train), setting, {"training perplexity": perplexity}, _cross_entropy)

    def _batches(self, train: Tensor):
        """Return a function that draws sequences from anywhere in the text, with replacement."""

        def draw(size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
            start = torch.randint(len(train) - self.window, (size, 1), generator=generator)
            place = (start + torch.arange(self.window)).to(train.device)
            return train[place], train[place + 1]

        return draw

    def _train(self, model: LanguageModel, train: Tensor, run: Run) -> dict[str, Tensor]:
        optimizer = torch.optim.SGD(model.parameters(), self.learning_rate)
        windows = list(_windows(train, self))
        total = max(1, round(self.epochs * len(windows)))
        state = None
        for step in run.progress.track(range(total), f"train {self.epochs:g} epochs"):
            words, targets = windows[step % len(windows)]
            if step % len(windows) == 0:
                state = None
            logits, state = model.run(words, state)
            state = tuple(part.detach() for part in state)
            loss = _cross_entropy(logits, targets)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), self.clip)
            optimizer.step()
            if (step + 1) % 50 == 0 or step + 1 == total:
                run.log(step + 1, loss=float(loss.detach()))
        tied = {"decoder.weight"} if self.tied else set()
        return {name: value for name, value in model.state_dict().items() if name not in tied}


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


def _windows(text: Tensor, config: LanguagePretraining):
    """Yield consecutive windows: inputs and targets (streams, window)."""
    inputs, targets = streams(text, config.batch)
    for start in range(0, inputs.shape[1] - config.window + 1, config.window):
        yield inputs[:, start : start + config.window], targets[:, start : start + config.window]


@torch.no_grad()
def _loss(model: LanguageModel, text: Tensor, config: LanguagePretraining) -> Tensor:
    state, losses = None, []
    for words, targets in _windows(text, config):
        logits, state = model.run(words, state)
        losses.append(_cross_entropy(logits, targets))
    return torch.stack(losses).mean()
