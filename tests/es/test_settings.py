"""Bad input gets an error that names it and the fix, and the model stays unchanged."""

import math
from typing import Any

import pytest
import torch

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
    "odd pairs of flips": (
        {"antithetic": True, "scheme": "rank_one", "population": 7},
        errors.InvalidArgument,
        "a population consists of pairs. Use population=8",
    ),
    "rounding": ({"rounding": "up"}, errors.InvalidArgument, "rounding='up'"),
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
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_arguments(name: str) -> None:
    how, kind, said = WRONG[name]
    model = network()
    before = state(model)
    with pytest.raises(kind, match=said):
        strategy(model=model, **how)
    assert same_state(before, state(model))


@pytest.mark.parametrize("antithetic", [False, True])
def test_rank_one_flips_have_no_groups(antithetic: bool) -> None:
    """Any number of members is allowed, and `group` changes nothing."""
    runs = [
        strategy(scheme="rank_one", population=26, group=group, antithetic=antithetic).run(3) for group in (1, 7, 40)
    ]
    for run in runs[1:]:
        assert [record.fitness_mean for record in run] == [record.fitness_mean for record in runs[0]]


def test_noise_that_ends_later() -> None:
    evolution = strategy(std=lambda generation: 0.1 - 0.05 * generation)
    assert evolution.run(2)[-1].generation == 1
    with pytest.raises(errors.InvalidArgument, match=r"std=0\.0 in generation 2"):
        evolution.step()
    assert evolution.generation == 2
