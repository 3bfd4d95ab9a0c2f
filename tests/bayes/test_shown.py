"""Results are shown in one line, with few digits."""

import math

import pytest
import torch

from flipout.bayes import Pruned, PruningCurve, Skipped, Terms
from flipout.bayes._shown import shown

LOSS = torch.tensor(2.123456789, requires_grad=True)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            Terms(LOSS, torch.tensor(-1000.0), torch.tensor(65432.1), 0.1, 32, 500),
            "Terms(loss=2.1235, log_likelihood=-1000, kl=65432, kl_weight=0.1, examples=32, num_data=500)",
        ),
        (Pruned(0.5, 10, 20, 1 / 3), "Pruned(fraction=0.5, weights=10, of=20, threshold=0.33333)"),
        (
            PruningCurve((Pruned(0.0, 0, 20, 0.0, 1 / 3), Pruned(0.5, 10, 20, 0.1, 2 / 3))),
            "PruningCurve(0: 0.33333, 0.5: 0.66667)",
        ),
        (Skipped(3, math.nan, tuple("abcdef")), "Skipped(step=3, loss=nan, parameters=a, b, c, … (6))"),
        (Skipped(0, None, ()), "Skipped(step=0, parameters=none)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_results(result: object, expected: str) -> None:
    assert repr(result) == expected


def test_arrays_show_their_shape_alone() -> None:
    assert shown(Pruned, mean=torch.zeros(3, 4)) == "type(mean=<3×4>)"
    assert shown(Pruned, mean=torch.zeros((), device="meta")) == "type(mean=<scalar>)"
