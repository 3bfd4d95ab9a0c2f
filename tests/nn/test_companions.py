"""`reset_parameters` initialises the learned companions of a Parameter too."""

from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout.bayes import Normal, kl, kl_terms
from flipout.nn.companions import unlearn
from tests.nn.on_meta import LEARNED, MODELS, RELATIVE, check, on_meta, poisoned


@pytest.mark.parametrize("distribution", [LEARNED, RELATIVE], ids=["std", "relative"])
@pytest.mark.parametrize("name", MODELS)
def test_reset_parameters_initialises_companions(name, distribution):
    model = poisoned(on_meta(name, distribution))
    for module in model.modules():
        reset: Any = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()
    assert all(value.abs().max() < 100 for value in model.state_dict().values())
    if name != "encoder" or distribution is LEARNED:  # torch resets the output projection after the attention around it
        check(model, distribution)
    assert kl(model).isfinite()


def test_a_parameter_whose_noise_is_taken_back_is_plain():
    model = flipout.perturb(
        nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)),
        flipout.MeanField(prior=Normal(0.0, 1.0)),
        where="*",
    )
    x = torch.randn(4, 3)
    model(x)
    first: Any = model[0]
    unlearn(first, "weight")
    assert set(first.state_dict()) == {"weight", "bias", "bias_rho", "bias_prior_mean", "bias_prior_std"}
    assert "0.weight" not in kl_terms(model)
    with flipout.hold(model, seed=1):
        model(x)
        assert torch.equal(flipout.example_weights(first)["weight"][1], first.weight)
