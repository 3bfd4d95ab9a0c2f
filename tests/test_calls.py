"""A short way: how many Python calls a small training step makes, and through how many files one layer's call passes.

Both are counted by cProfile, which no noise of the machine disturbs.
"""

import cProfile
import importlib
import pstats
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import flipout
from benchmarks.small import mlp, python_calls, training
from flipout import bayes

PACKAGE = Path(flipout.__file__).parent


def functions(run: Callable[[], object]) -> set[tuple[str, str]]:
    """The functions of this package that a run calls, with their files."""
    profile = cProfile.Profile()
    profile.enable()
    run()
    profile.disable()
    called = pstats.Stats(profile).stats  # pyright: ignore[reportAttributeAccessIssue]
    return {
        (Path(path).relative_to(PACKAGE).as_posix(), name)
        for path, _, name in called
        if Path(path).is_relative_to(PACKAGE)
    }


def files(run: Callable[[], object]) -> set[str]:
    """The files of this package whose functions a run calls."""
    return {path for path, _ in functions(run)}


def step_calls() -> int:
    model = flipout.perturb(mlp(), flipout.MeanField())
    return int(python_calls(training(model, torch.randn(32, 13))))


def test_a_training_step_of_three_layers_makes_few_calls() -> None:
    """The plain network makes 78. Where transformers' `generate` is loaded, a step looks if it runs: two calls more."""
    code = "from tests.test_calls import step_calls; print(step_calls())"
    fresh = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    assert int(fresh.stdout) <= 250
    assert step_calls() <= 252


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


@pytest.mark.filterwarnings("ignore::flipout.errors.NeverRead")
@pytest.mark.parametrize(
    "context", [flipout.hold, flipout.sampling, lambda model: flipout.using(model, scheme="shared")]
)
def test_a_call_inside_a_context_passes_few_files(context: Callable[[torch.nn.Module], Any]) -> None:
    model, x, met = flipout.perturb(mlp(), flipout.MeanField()), torch.randn(8, 13), []

    def forward(x: torch.Tensor) -> torch.Tensor:
        y = model[0](x).relu()
        met.append(files(lambda: model[2](y)))
        return y

    model.forward = forward  # pyright: ignore[reportAttributeAccessIssue]
    with context(model):
        for _ in range(3):
            model(x)
    assert {"nn/linear.py", "nn/remembered_call.py", "ops/linear.py"} <= met[-1]
    assert len(met[-1]) <= 9, met[-1]


def test_a_policy_that_acts_makes_few_calls() -> None:
    """The plain network makes 44, and the long way 480."""
    model, x = flipout.perturb(mlp(), flipout.Gaussian(0.1)).eval(), torch.randn(8, 13)
    with torch.no_grad(), flipout.hold(model):
        assert python_calls(lambda: model(x)) <= 175


@pytest.mark.filterwarnings("ignore::flipout.errors.NeverRead")
def test_the_kl_of_three_layers_makes_few_calls() -> None:
    """It reads Parameters from outside their layers, but as code of the library: nobody has to ask who runs.

    Where DTensor is loaded, as it is behind transformers, each of the three Parameters is asked if it is one.
    """
    importlib.import_module("torch.distributed.tensor")
    model = flipout.perturb(mlp(), flipout.MeanField(prior=bayes.Normal(0.0, 1.0)))
    bayes.kl(model)
    assert python_calls(lambda: bayes.kl(model)) <= 550


def test_a_step_on_an_elbo_makes_few_calls() -> None:
    """The training step makes 250 of them, the KL 545."""
    noise = flipout.MeanField(prior=bayes.Normal(0.0, 1.0))
    elbo = bayes.ELBO(flipout.perturb(mlp(), noise), "gaussian", num_data=1000)
    x, y = torch.randn(32, 13), torch.randn(32, 1)
    assert python_calls(lambda: elbo(x, y).loss.backward()) <= 1000


def test_a_prediction_of_32_samples_makes_few_calls() -> None:
    """All samples are one pass here. Inputs that are tensors are not searched for tensors."""
    model, x = flipout.perturb(mlp(), flipout.MeanField()), torch.randn(200, 13)
    assert python_calls(lambda: bayes.predict(model, x, samples=32)) <= 1720


def test_the_page_about_the_inside_draws_what_is_called() -> None:
    """All but what needs a GPU: a first call, a usual one, and one with a large input."""
    page = (PACKAGE.parent / "docs" / "inside.md").read_text(encoding="utf-8")
    drawing = page.partition("```text")[2].partition("```")[0]
    drawn = set(re.findall(r"((?:nn|draws|schemes|ops)/\w+\.py)\s+(?:[A-Z]\w+\.)?([a-z_]\w*)", drawing))
    model = flipout.perturb(mlp(), flipout.MeanField())
    small, large = training(model, torch.randn(32, 13)), training(model, torch.randn(4096, 13))
    called = functions(small) | functions(small) | functions(large)
    assert len(drawn) > 12
    assert drawn - called == {("nn/remembered_fused.py", "_product")}
    named = set(re.findall(r"`((?:nn|draws|schemes|ops|distributions)/[\w/]+\.py)`", page))
    assert named
    assert not [path for path in named if not (PACKAGE / path).is_file()]
