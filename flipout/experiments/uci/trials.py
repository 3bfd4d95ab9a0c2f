"""Trials of each method on all splits of a set: the search for its hyperparameters, and the test."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import flipout
from flipout.errors import InvalidArgument

from ..data import Regression
from ..evidence.curves import measured_iterations
from ..running.experiment import Config, check_least
from ..running.runs import Run
from ..training.supervised import isolated_randomness
from .lanes import Lanes, Training, copied, train
from .networks import METHODS, SCHEMES, objective
from .parts import Parts, final_parts, search_parts
from .published import PUBLISHED
from .scores import SCORES, mixture_log_likelihood, mixture_scores

WIDE = "protein-tertiary-structure"  # the set with 100 hidden units instead of 50
_COMPARED = 64  # examples of a batch whose losses are compared between the schemes


@dataclass(frozen=True)
class UciConfig(Config):
    sets: tuple[str, ...] = tuple(PUBLISHED)
    methods: tuple[str, ...] = tuple(METHODS)
    embedded: bool = False  # use diabetes instead of a set that is not on this machine
    splits: int = 20  # at most; protein-tertiary-structure has 5
    hidden: int = 50  # units; twice as many for protein-tertiary-structure
    training: Training = field(default_factory=Training)
    samples: int = 64  # weight samples of a prediction
    watched: int = 500  # at most this many training rows measure a bound or judge a candidate
    batches: int = 200  # whose losses are compared between the schemes, in the first set

    def __post_init__(self) -> None:
        unknown = [method for method in self.methods if method not in METHODS]
        if unknown or not self.methods:
            raise InvalidArgument(f"methods={self.methods!r}: expected some of {', '.join(METHODS)}.")
        check_least(self, splits=2, hidden=1, samples=2, watched=1, batches=10)


@dataclass(frozen=True, eq=False)
class Trials:
    """The trials on one set. Each is a piece of the run."""

    name: str
    regression: Regression
    config: UciConfig
    run: Run

    def search(self, method: str) -> list[int]:
        """Return the number of the candidate that each split chooses."""
        searched = METHODS[method].choice or method
        return self.run.piece(f"{self.name}.{searched}.search", lambda: self._search(searched))["chosen"]

    def test(self, method: str) -> dict[str, Any]:
        """Return the scores of a method on each split, after training with the chosen candidates."""
        chosen = self.search(method)
        return self.run.piece(f"{self.name}.{method}", lambda: self._test(method, chosen))

    def _search(self, method: str) -> dict[str, Any]:
        """Train every candidate on a part of each split's training part, and choose by the rest of it."""
        started = time.monotonic()
        parts = search_parts(self.regression, self._splits, self.run.generator(f"{self.name}.search"))
        copies = len(METHODS[method].candidates)
        numbers = [number for number in range(copies) for _ in parts.scale]
        with isolated_randomness(self.run):
            lanes = self._train(method, parts, numbers, f"{self.name}.{method}.search", log=False)
            means, stds = self._predict(method, lanes, parts.x_held[:, : self.config.watched], copies)
        y = parts.y_held[:, : self.config.watched]
        scores = [
            [mixture_log_likelihood(means[:, c, s], stds[:, c, s, None], y[s]) for s in range(len(y))]
            for c in range(copies)
        ]
        chosen = torch.tensor(scores, dtype=torch.float64).nan_to_num(-torch.inf).argmax(0).tolist()
        return {"log_likelihood": scores, "chosen": chosen, "seconds": time.monotonic() - started}

    def _test(self, method: str, chosen: list[int]) -> dict[str, Any]:
        """Train on the whole training part of each split, and score the test part."""
        started = time.monotonic()
        parts = final_parts(self.regression, self._splits)
        members = METHODS[method].members
        with isolated_randomness(self.run):
            lanes = self._train(method, parts, chosen * members, f"{self.name}.{method}", log=True)
            means, stds = self._predict(method, lanes, parts.x_held, members)
            is_compared = method == "flipout" and self.name == self.config.sets[0]
            losses = self._losses(lanes, parts) if is_compared else {}
        # The members of an ensemble are samples too.
        means, stds = means.flatten(0, 1), stds.expand(len(means), -1, -1).flatten(0, 1)
        scores = [_own_units(means[:, s], stds[:, s, None], parts, s) for s in range(len(parts.scale))]
        found = {score: [split[score] for split in scores] for score in SCORES}
        return {**found, "losses": losses, "seconds": time.monotonic() - started}

    def _train(self, method: str, parts: Parts, numbers: Sequence[int], piece: str, *, log: bool) -> Lanes:
        """Train a lane for each number of a candidate. Initial weights and batches depend on the set alone."""
        candidates, steps = METHODS[method].candidates, self.config.training.steps
        hidden = self.config.hidden * (2 if self.name == WIDE else 1)
        examples, inputs = parts.x.shape[1:]
        torch.manual_seed(self.run.seed_of(f"{self.name}.start"))
        lanes = Lanes.of([objective(METHODS[method], candidates[n], inputs, hidden, examples) for n in numbers])
        moments = measured_iterations(steps) if method in SCHEMES else range(0, steps + 1, max(steps // 10, 1))
        every = -(-examples // self.config.watched)
        x, y = (copied(values[:, ::every], len(numbers) // len(parts.scale)) for values in (parts.x, parts.y))

        def watch(step: int) -> None:
            if log and step in moments:
                # One scheme for all: a bound under shared noise would be the same, but jump about.
                network = lanes.module.network
                measured = flipout.using(network, scheme="flipout") if lanes.module.noisy else nullcontext()
                with torch.no_grad(), measured:
                    self.run.log(step, loss=round(float(lanes.losses(x, y).mean()), 6))

        torch.manual_seed(self.run.seed_of(piece))
        train(lanes, parts.x, parts.y, self.config.training, self.run.generator(f"{self.name}.rows"), watch)
        return lanes

    def _predict(self, method: str, lanes: Lanes, x: Tensor, copies: int) -> tuple[Tensor, Tensor]:
        """Return means (samples, copies, splits, rows) for x (splits, rows, …), and the noise (1, copies, splits)."""
        samples = self.config.samples if lanes.module.noisy or method == "dropout" else 1
        means = torch.stack([lanes.outputs(copied(x, copies)) for _ in range(samples)])
        return means.unflatten(1, (copies, -1)), lanes.noise.view(1, copies, -1)

    @torch.no_grad()
    def _losses(self, lanes: Lanes, parts: Parts) -> dict[str, list[float]]:
        """Return the losses of random batches at one posterior under each scheme, averaged over the splits."""
        rows, found = self.run.generator("losses.rows"), {}
        for scheme in SCHEMES:
            with flipout.using(lanes.module.network, scheme=scheme):
                batches = torch.randint(parts.y.shape[1], (self.config.batches, _COMPARED), generator=rows)
                found[scheme] = [float(lanes.losses(parts.x[:, b], parts.y[:, b]).mean()) for b in batches]
        return found

    @property
    def _splits(self) -> int:
        return min(self.config.splits, len(self.regression.tests))


def _own_units(means: Tensor, stds: Tensor, parts: Parts, split: int) -> dict[str, float]:
    """Score a split in the target's own units."""
    scale = parts.scale[split]
    return mixture_scores(means * scale, stds * scale, parts.y_held[split] * scale)
