"""Bad input: an error that names it and the fix, and a model left as it was."""

import math
from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout import errors
from tests.es.toys import network, strategy
from tests.networks import same_state, state

WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no whole groups": ({"population": 30}, errors.InvalidArgument, "Use population=28 or 32"),
    "less than a group": ({"population": 3}, errors.InvalidArgument, "Use population=4, or group=3"),
    "no member": ({"population": 0}, errors.InvalidArgument, "population=0: expected a whole number ≥ 1"),
    "half a member": ({"population": 4.0}, errors.InvalidArgument, "expected a whole number"),
    "odd pairs": ({"antithetic": True, "group": 3}, errors.InvalidArgument, "Use group=4"),
    "no noise": ({"std": 0}, errors.InvalidArgument, "std=0 in generation 0: expected a finite number > 0"),
    "negative noise": ({"std": -0.1}, errors.InvalidArgument, "std=-0.1"),
    "noise that is none": ({"std": math.nan}, errors.InvalidArgument, "std=nan"),
    "a schedule of no noise": ({"std": lambda g: 0.0}, errors.InvalidArgument, "std=0.0 in generation 0"),
    "decay": ({"weight_decay": -1.0}, errors.InvalidArgument, "weight_decay=-1.0"),
    "seed": ({"seed": 0.5}, errors.InvalidArgument, "seed=0.5"),
    "shaping": ({"shaping": "ranks"}, errors.InvalidArgument, "shaping='ranks'"),
    "scheme": ({"scheme": "flip"}, errors.InvalidArgument, "scheme='flip'"),
    "two groups": ({"scheme": flipout.Flipout(group=8)}, errors.InvalidArgument, "group sizes differ"),
    "a precision": (
        {"scheme": flipout.Flipout(perturbation_dtype=torch.float8_e4m3fn)},
        errors.InvalidArgument,
        "Leave perturbation_dtype out",
    ),
    "one perturbation": ({"scheme": "shared"}, errors.NoPopulation, "'shared' can never serve a population"),
    "no weights": ({"scheme": "local_reparam"}, errors.NoPopulation, "'local_reparam' can never serve"),
    "an optimiser": ({"optimizer": torch.optim.SGD(network().parameters())}, errors.InvalidArgument, "a function from"),
    "no optimiser": ({"optimizer": lambda p: None}, errors.InvalidArgument, "a function from"),
    "half of it": (
        {"optimizer": lambda p: torch.optim.SGD(p[:2])},
        errors.InvalidArgument,
        "it has 2 Parameters, but 4",
    ),
    "the wrong way": (
        {"optimizer": lambda p: torch.optim.SGD(p, maximize=True)},
        errors.InvalidArgument,
        "maximize=True would minimise",
    ),
    "a schedule by loss": (
        {"schedule": torch.optim.lr_scheduler.ReduceLROnPlateau},
        errors.InvalidArgument,
        "steps by a loss",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_arguments(name: str) -> None:
    how, kind, said = WRONG[name]
    model = network()
    before = state(model)
    with pytest.raises(kind, match=said):
        strategy(model=model, **how)
    assert same_state(before, state(model))


class Gain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(4, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gain * x


def test_a_parameter_that_no_layer_perturbs() -> None:
    model = nn.Sequential(Gain(), network())
    with pytest.raises(errors.UnknownParameter, match=r"0.gain of a Gain.*flipout.register.*requires_grad_\(False\)"):
        strategy(model=model)
    gain = model.get_parameter("0.gain").requires_grad_(False)
    strategy(model=model).step()
    assert gain.tolist() == [1.0] * 4


def test_nothing_to_train() -> None:
    with pytest.raises(errors.InvalidArgument, match="nothing to train"):
        strategy(model=network().requires_grad_(False))


def test_a_model_with_noise() -> None:
    model = flipout.perturb(network(), flipout.Gaussian(0.1))
    with pytest.raises(errors.AlreadyPerturbed, match=r"flipout.freeze\(model\)"):
        strategy(model=model)


def test_noise_that_ends_later() -> None:
    made = strategy(std=lambda generation: 0.1 - 0.05 * generation)
    assert made.run(2)[-1].generation == 1
    with pytest.raises(errors.InvalidArgument, match=r"std=0\.0 in generation 2"):
        made.step()
    assert made.generation == 2


@pytest.mark.parametrize("shape", [(), (23,), (24, 1), (12, 2)])
def test_fitness_of_the_wrong_shape(shape: tuple[int, ...]) -> None:
    made = strategy(lambda population: torch.zeros(shape))
    with pytest.raises(errors.InvalidInput, match=r"fitness\(population\).*expected \(24,\)"):
        made.step()
    with pytest.raises(errors.InvalidInput, match=r"tell\(fitness\).*expected \(24,\)"):
        made.tell(torch.zeros(shape))
    assert made.generation == 0


@pytest.mark.parametrize("wrong", [None, "good", [None] * 24])
def test_fitness_that_is_no_number(wrong: Any) -> None:
    with pytest.raises(errors.InvalidInput, match="expected 24 numbers"):
        strategy(lambda population: wrong).step()


def test_no_fitness() -> None:
    with pytest.raises(errors.InvalidArgument, match="fitness=None"):
        strategy(None).step()


def test_bad_runs() -> None:
    wrong: list[dict[str, Any]] = [{"generations": -1}, {"generations": 1, "every": 0}, {"generations": 1.5}]
    for how in wrong:
        with pytest.raises(errors.InvalidArgument, match="expected a whole number"):
            strategy().run(**how)
