"""A short way: how many Python calls a small training step makes, and through how many files one layer's call passes.

Both are counted by cProfile, which no noise of the machine disturbs.
"""

import cProfile
import pstats
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import flipout
from benchmarks.small import mlp, python_calls, training

PACKAGE = Path(flipout.__file__).parent


def files(run: Callable[[], object]) -> set[str]:
    """The files of this package whose functions a run calls."""
    profile = cProfile.Profile()
    profile.enable()
    run()
    profile.disable()
    called = {Path(path) for path, _, _ in pstats.Stats(profile).stats}  # pyright: ignore[reportAttributeAccessIssue]
    return {str(path.relative_to(PACKAGE)) for path in called if path.is_relative_to(PACKAGE)}


def test_a_training_step_of_three_layers_makes_few_calls() -> None:
    """The plain network makes 78."""
    model = flipout.perturb(mlp(), flipout.MeanField())
    assert python_calls(training(model, torch.randn(32, 13))) <= 250


@pytest.mark.filterwarnings("ignore::flipout.errors.NeverRead")  # the last layer is left out
def test_one_call_of_a_layer_passes_few_files() -> None:
    """Those of the pass and of its randomness are another layer's, or the root's."""
    model = flipout.perturb(mlp(), flipout.MeanField())
    x, met = torch.randn(32, 13), []

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = model[0](x).relu()
        met.append(files(lambda: model[2](y).sum().backward()))
        return y

    model.forward = forward  # pyright: ignore[reportAttributeAccessIssue]
    for _ in range(3):
        model(x)
    assert {"nn/linear.py", "nn/remembered_call.py", "ops/linear.py"} <= met[-1]
    assert len(met[-1]) <= 9, met[-1]
