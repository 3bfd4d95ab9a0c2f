"""Training one language model: a captured step over data on the device, and checkpoints between epochs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

import flipout

from .. import data
from ..running.experiment import check_least
from ..running.runs import Run
from ..training.supervised import autocast
from .models import Shape
from .rows import Row
from .schedules import Schedule, best
from .walks import Reading, Walk


@dataclass(frozen=True)
class LanguageTraining:
    """Windows of `window` tokens over `batch` streams, in order; one step each."""

    optimizer: Literal["sgd", "adam", "amsgrad"] = "sgd"
    schedule: Schedule = field(default_factory=Schedule)
    batch: int = 40
    window: int = 35
    clip: float = 0.25  # largest norm of the gradient; 0: never clip
    carried: bool = True  # carry the state from window to window; else windows in random order, from a zero state
    activation: float = 0.0  # AR of Merity et al.: factor of the mean square of the outputs under dropout
    temporal: float = 0.0  # TAR: factor of the mean square of their changes from step to step, without dropout
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"  # of matrix products on a GPU
    reading: int = 20  # streams in which the validation text is read

    def __post_init__(self) -> None:
        check_least(self, "training.", batch=1, window=1, reading=1, clip=0)


def losses(history: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the validation losses, with the infinities that JSON wrote as null."""
    return [math.inf if epoch["valid"] is None else epoch["valid"] for epoch in history]


class Randomness:
    """torch's generator, as one model sees it.

    Models that train side by side take no random numbers from each other, and graphs that replay on several streams at
    once have separate places for seed and offset.
    """

    def __init__(self, device: torch.device, seed: int) -> None:
        self.on_gpu = device.type == "cuda"
        if self.on_gpu:
            torch.cuda.init()
        index = device.index if device.index is not None or not self.on_gpu else torch.cuda.current_device()
        self.shared = torch.cuda.default_generators[index] if self.on_gpu else torch.default_generator
        self.generator = torch.Generator(self.shared.device).manual_seed(seed)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        if self.on_gpu:
            before = self.shared.graphsafe_get_state()
            self.shared.graphsafe_set_state(self.generator)
            try:
                yield
            finally:
                self.shared.graphsafe_set_state(before)
            return
        before = self.shared.get_state()
        self.shared.set_state(self.generator.get_state())
        try:
            yield
        finally:
            self.generator.set_state(self.shared.get_state())
            self.shared.set_state(before)


class RowTrainer:
    """A row with one seed. It has its own generator and its own stream."""

    def __init__(self, config: LanguageTraining, shape: Shape, row: Row, seed: int, text: data.Text, run: Run) -> None:
        self.config, self.row, self.seed, self.run = config, row, seed, run
        self.name = f"{row.name}.{seed}"
        self.device = run.device
        self.on_gpu = run.device.type == "cuda"
        self.stream = torch.cuda.Stream(run.device) if self.on_gpu else None
        self.randomness = Randomness(run.device, run.seed_of(f"draws.{self.name}"))
        self.history: list[dict[str, Any]] = []
        self.valid_loss = torch.tensor(math.nan)
        with self.isolated():
            model = row.model(len(text.vocabulary), shape, run.seed_of(f"network.{seed}"))
            self.model = model.to(run.device).train()
            self.parameters: list[Tensor] = list(self.model.parameters())
            self.best = [parameter.detach().clone() for parameter in self.parameters]
            self.rate = torch.tensor(config.schedule.rate, device=run.device)
            self.optimizer = self._optimizer()
            self.walk = Walk(self.model, text.train, config.batch, config.window, carried=config.carried)
            self.valid = Reading(self.model, text.valid, config.reading, 256)
            self.step = flipout.capture(self._step)
        with self.on_stream():
            self._resume()

    def on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    @contextmanager
    def isolated(self) -> Iterator[None]:
        with self.on_stream(), self.randomness():
            yield

    @property
    def losses(self) -> list[float]:
        """The validation losses so far."""
        return losses(self.history)

    @property
    def ended(self) -> str | None:
        return self.config.schedule.ended(self.losses)

    def begin(self) -> None:
        """Begin an epoch."""
        order = None
        if not self.config.carried:
            generator = self.run.generator(f"order.{self.name}.{len(self.history)}")
            order = torch.randperm(self.walk.full, generator=generator)
        with self.on_stream():
            self.rate.fill_(self.config.schedule.next(self.losses))
            self.walk.begin(order)

    def advance(self, step: int) -> None:
        """Train on one window, without waiting for the device."""
        with self.isolated():
            self.step(*self.walk.places[step])

    def validate(self) -> None:
        """Read the validation text, without waiting for the device."""
        with self.isolated():
            self.valid_loss = self.valid()

    def finish(self, **seconds: float) -> None:
        """End an epoch: note its losses, and keep the weights if they are the best so far."""
        with self.on_stream(), torch.no_grad():
            train = float(self.walk.total) / self.walk.predicted
            self.history.append({"train": train, "valid": float(self.valid_loss), "rate": float(self.rate), **seconds})
            if best(self.losses) == len(self.history) - 1:
                torch._foreach_copy_(self.best, self.parameters)
            self._checkpoint()

    @torch.no_grad()
    def to_best(self) -> None:
        with self.on_stream():
            torch._foreach_copy_(self.parameters, self.best)

    def weights(self) -> dict[str, Tensor]:
        return {name: parameter.detach() for name, parameter in self.model.named_parameters()}

    def close(self) -> None:
        self.step.close()
        self.valid.close()

    def _step(self, start: Tensor, within: Tensor) -> None:
        with autocast(self.config, self.run.device):
            output, loss = self.walk.evaluate(start, within)
            penalised = loss
            if self.config.activation:
                penalised = penalised + self.config.activation * output.output.float().square().mean()
            if self.config.temporal and len(within) > 1:
                penalised = penalised + self.config.temporal * output.raw.float().diff(dim=1).square().mean()
        self.optimizer.zero_grad()
        penalised.backward()
        if self.config.clip:
            nn.utils.clip_grad_norm_(self.parameters, self.config.clip, foreach=True)
        self.optimizer.step()
        self.walk.move(output, loss)

    def _optimizer(self) -> torch.optim.Optimizer:
        if self.config.optimizer == "sgd":
            return torch.optim.SGD(self.parameters, self.rate, fused=self.on_gpu)
        how: dict[str, Any] = {"fused": True, "capturable": True} if self.on_gpu else {"foreach": False}
        return torch.optim.Adam(self.parameters, self.rate, amsgrad=self.config.optimizer == "amsgrad", **how)

    def _checkpoint(self) -> None:
        """Save the state in which the next epoch begins. Weights that are also the best are saved once."""
        saved = {f"model.{i}": parameter for i, parameter in enumerate(self.parameters)}
        if best(self.losses) != len(self.history) - 1:
            saved |= {f"best.{i}": parameter for i, parameter in enumerate(self.best)}
        for i, parameter in enumerate(self.parameters):
            saved |= {f"optimizer.{i}.{key}": part for key, part in self.optimizer.state[parameter].items()}
        self.run.checkpoint(self.name, {**saved, "generator": self.randomness.generator.get_state()}, self.history)

    def _resume(self) -> None:
        last = self.run.last_checkpoint(self.name)
        if last is None:
            return
        saved, self.history = last
        self.randomness.generator.set_state(saved["generator"])
        with torch.no_grad():
            for i, (parameter, best_weight) in enumerate(zip(self.parameters, self.best, strict=True)):
                parameter.copy_(saved[f"model.{i}"])
                best_weight.copy_(saved.get(f"best.{i}", saved[f"model.{i}"]))
                prefix = f"optimizer.{i}."
                state = {key.removeprefix(prefix): part for key, part in saved.items() if key.startswith(prefix)}
                if state:
                    self.optimizer.state[parameter] = {key: part.to(self.device) for key, part in state.items()}
