"""The parts of all splits of a regression, stacked and standardised by what a network is fitted to."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..data import Regression


@dataclass(frozen=True, eq=False)
class Parts:
    """All splits side by side. `scale` is the standard deviation of each split's targets, in their own units."""

    x: Tensor  # (splits, examples, features)
    y: Tensor  # (splits, examples)
    x_held: Tensor
    y_held: Tensor
    scale: Tensor  # (splits,)


def final_parts(regression: Regression, splits: int) -> Parts:
    """Fit to the whole training part of each split, and hold its test part out."""
    rows = [(regression.train_rows(split), regression.tests[split]) for split in range(splits)]
    return _stacked(regression, rows)


def search_parts(regression: Regression, splits: int, generator: torch.Generator) -> Parts:
    """Fit to four fifths of the training part of each split, and hold the rest of it out. Test rows are in neither."""
    rows = []
    for split in range(splits):
        train = regression.train_rows(split)
        train = train[torch.randperm(len(train), generator=generator)]
        fitted = 4 * len(train) // 5
        rows.append((train[:fitted], train[fitted:]))
    return _stacked(regression, rows)


def _stacked(regression: Regression, rows: list[tuple[Tensor, Tensor]]) -> Parts:
    found = []
    for fitted, held in rows:
        x, y = regression.x[fitted], regression.y[fitted]
        spread = x.std(0)
        spread[spread == 0] = 1.0  # naval-propulsion-plant has two constant features
        inputs = [(regression.x[part] - x.mean(0)) / spread for part in (fitted, held)]
        targets = [(regression.y[part] - y.mean()) / y.std() for part in (fitted, held)]
        found.append((inputs[0], targets[0], inputs[1], targets[1], y.std()))
    return Parts(*(torch.stack(values).float() for values in zip(*found, strict=True)))
