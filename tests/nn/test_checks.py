"""Functions that take a model refuse anything else by name."""

from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout import errors
from tests.networks import GAUSSIAN

NOT_MODULES: dict[str, tuple[Any, str]] = {
    "list": ([nn.Linear(4, 3)], r"a list given; expected an nn\.Module.*nn\.Sequential\(\*layers\)"),
    "parameters": (nn.Linear(4, 3).parameters(), r"a generator given; .*the model itself, not its .*parameters\(\)"),
    "class": (nn.Linear, "the class Linear given; expected an nn"),
}
# A list of models is an ensemble there.
OTHERWISE = {("predict", "list"): r"predict: a list of 1 models given; expected one model.*Prediction\.from_outputs"}


TAKERS: dict[str, Any] = {
    "perturb": lambda model: flipout.perturb(model, GAUSSIAN),
    "perturb, by hand": flipout.perturb,
    "hold": lambda model: flipout.hold(model).__enter__(),
    "sampling": lambda model: flipout.sampling(model).__enter__(),
    "using": lambda model: flipout.using(model, scheme="shared").__enter__(),
    "freeze": flipout.freeze,
    "summary": flipout.summary,
    "kl": flipout.bayes.kl,
    "ELBO": lambda model: flipout.bayes.ELBO(model, "categorical", num_data=5),
    "predict": lambda model: flipout.bayes.predict(model, torch.randn(2, 4)),
}


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("kind", NOT_MODULES)
def test_anything_but_a_module_is_refused(taker, kind):
    model, message = NOT_MODULES[kind]
    with pytest.raises(errors.InvalidArgument, match=OTHERWISE.get((taker, kind), message)):
        TAKERS[taker](model)
