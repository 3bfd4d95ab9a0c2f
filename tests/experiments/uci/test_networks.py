"""The loss of a network is its negative log-likelihood and the price of its weights."""

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from flipout import bayes
from flipout.experiments.uci.networks import METHODS, SCHEMES, Candidate, StackedDropout, objective
from tests.statistics import assert_mean

INPUTS, HIDDEN, EXAMPLES = 3, 4, 50


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_as_many_candidates(name):
    method = METHODS[name]
    assert len(method.candidates) == len({*method.candidates}) == 4
    if method.choice:
        assert METHODS[method.choice].candidates == method.candidates
        assert not METHODS[method.choice].choice


def test_the_price_of_plain_weights_is_that_of_their_prior():
    x, y = torch.randn(5, INPUTS), torch.randn(5)
    found = objective(METHODS["plain"], Candidate(0.3), INPUTS, HIDDEN, EXAMPLES)
    prior = Normal(0.0, 0.3)
    weights = [layer.weight for layer in found.network.children() if isinstance(layer, nn.Linear)]
    penalty = sum((prior.log_prob(torch.zeros(())) - prior.log_prob(weight)).sum() for weight in weights)
    log_likelihood = Normal(found.network(x), 0.5).log_prob(y).mean()
    assert torch.allclose(found(x, y), penalty / EXAMPLES - log_likelihood)
    assert found.likelihood.log_std.detach().exp() == pytest.approx(0.5)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_loss_of_a_mean_field_is_the_negative_bound(scheme):
    torch.manual_seed(0)
    x, y = torch.randn(5, INPUTS), torch.randn(5)
    found = objective(METHODS[scheme], Candidate(0.3), INPUTS, HIDDEN, EXAMPLES)
    elbo = bayes.ELBO(found.network, found.likelihood, num_data=EXAMPLES)
    with torch.random.fork_rng():
        loss = found(x, y)
    assert torch.allclose(loss, elbo(x, y).loss)
    assert found.plain == []


def test_rank_one_pays_for_its_scales_and_for_its_weights():
    torch.manual_seed(0)
    x, y = torch.randn(5, INPUTS), torch.randn(5)
    found = objective(METHODS["rank_one"], Candidate(0.2, scales=0.3), INPUTS, HIDDEN, EXAMPLES)
    parameters = dict(found.network.named_parameters())
    scales = [name for name in parameters if name.endswith("_scale")]
    kl = sum(
        kl_divergence(
            Normal(parameters[name], nn.functional.softplus(parameters[f"{name}_rho"])), Normal(1.0, 0.3)
        ).sum()
        for name in scales
    )
    penalty = sum((parameters[f"{layer}.weight"] / 0.2).square().sum() / 2 for layer in ("0", "2"))
    with torch.random.fork_rng():
        log_likelihood = found.likelihood(found.network(x), y).mean()
    assert len(scales) == 4
    assert torch.allclose(found(x, y), (kl + penalty) / EXAMPLES - log_likelihood)


def test_dropout_keeps_the_mean_and_the_rate():
    torch.manual_seed(0)
    drop = StackedDropout(0.2)
    dropped = drop(torch.ones(20_000))
    assert dropped.unique().tolist() == [0.0, 1.25]
    assert_mean(dropped, 1.0)
    x = torch.randn(4)
    assert drop.eval()(x) is x


def test_dropout_stands_before_both_layers():
    network = objective(METHODS["dropout"], Candidate(1.0, 0.05), INPUTS, HIDDEN, EXAMPLES).network
    kinds = [type(layer) for layer in network.children()]
    assert kinds == [StackedDropout, nn.Linear, nn.ReLU, StackedDropout, nn.Linear, nn.Flatten]
    rates = [float(layer.rate) for layer in network.children() if isinstance(layer, StackedDropout)]
    assert rates == pytest.approx([0.05, 0.05])
