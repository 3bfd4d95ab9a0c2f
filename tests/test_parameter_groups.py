"""Groups for an optimiser: weight decay spares what is learned beside a weight."""

from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout import bayes, errors


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.MultiheadAttention(6, 2), nn.Linear(6, 2))


def names(model: nn.Module, group: dict[str, Any]) -> set[str]:
    found = {id(parameter): name for name, parameter in model.named_parameters()}
    return {found[id(parameter)] for parameter in group["params"]}


def test_spreads_and_learned_priors_are_spared() -> None:
    prior = bayes.Normal(0.0, 1.0, learn_scale=True)
    model = flipout.perturb(network(), flipout.MeanField(prior=prior))
    decayed, spared = flipout.parameter_groups(model, weight_decay=0.1)
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)
    assert all("_rho" in name or "_prior_" in name for name in names(model, spared))
    assert any("_prior_" in name for name in names(model, spared))
    assert not any("_rho" in name or "_prior_" in name for name in names(model, decayed))
    assert names(model, decayed) | names(model, spared) == {name for name, _ in model.named_parameters()}


def test_decay_alone_leaves_the_spreads_where_they_are() -> None:
    model: Any = flipout.perturb(nn.Linear(4, 3), flipout.MeanField(std=0.05))
    before = model.weight_rho.detach().clone(), model.weight.detach().clone()
    optimizer = torch.optim.AdamW(flipout.parameter_groups(model, weight_decay=0.5), lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert torch.equal(model.weight_rho, before[0])
    assert torch.allclose(model.weight, before[1] * 0.95)


def test_noise_that_a_likelihood_learns_is_spared() -> None:
    model = flipout.perturb(nn.Linear(4, 1), flipout.MeanField(prior=bayes.Normal()))
    elbo = bayes.ELBO(model, "gaussian", num_data=10)
    decayed, spared = flipout.parameter_groups(elbo, weight_decay=0.1)
    assert names(elbo, spared) == {"model.weight_rho", "likelihood.log_std"}
    assert names(elbo, decayed) == {"model.weight", "model.bias"}


def test_a_module_names_what_decay_must_spare() -> None:
    class Temperature(nn.Module):
        undecayed = ("log_temperature", "absent")

        def __init__(self) -> None:
            super().__init__()
            self.log_temperature = nn.Parameter(torch.ones(()))

    model = flipout.perturb(nn.Sequential(nn.Linear(4, 1), Temperature()), flipout.Gaussian(0.1))
    _, spared = flipout.parameter_groups(model, weight_decay=0.1)
    assert names(model, spared) == {"1.log_temperature"}


def test_tied_weights_are_listed_once() -> None:
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    flipout.perturb(model, flipout.MeanField())
    groups = flipout.parameter_groups(model, weight_decay=0.1)
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def test_noise_without_a_learned_spread_has_one_group() -> None:
    model = flipout.perturb(network(), flipout.Gaussian(0.1))
    (group,) = flipout.parameter_groups(model, weight_decay=0.1)
    assert len(group["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize("decay", [-0.1, float("nan"), float("inf"), "0.1", True, None])
def test_what_is_no_decay_is_refused(decay: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"weight_decay=.*expected a finite number"):
        flipout.parameter_groups(flipout.perturb(network(), flipout.MeanField()), weight_decay=decay)


def test_a_plain_model_is_refused() -> None:
    with pytest.raises(errors.NotPerturbed):
        flipout.parameter_groups(network(), weight_decay=0.1)
