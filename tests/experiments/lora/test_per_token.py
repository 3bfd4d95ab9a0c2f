"""The labelled variant draws what BLoB's code draws: right for one token, and a new weight for each further one."""

import pytest
import torch
from torch.nn.functional import softplus

from flipout.experiments.lora.per_token import posterior_layers, signs_per_token
from tests.peft.models import bayesian
from tests.statistics import assert_covariance, assert_mean


@pytest.mark.parametrize("base_per_row", [True, False])
def test_tokens_of_a_sequence_have_noise_of_their_own(base_per_row: bool) -> None:
    model = bayesian()
    layer = posterior_layers(model)[0]
    torch.manual_seed(0)
    x = torch.randn(16).double().expand(4000, 2, 16)  # two equal tokens
    with torch.no_grad(), signs_per_token(model, base_per_row=base_per_row):
        # Rows share a base, unless each has its own; so take few rows of many calls then.
        rows = layer(x) if base_per_row else torch.cat([layer(x[:1]) for _ in range(4000)])
    noise = rows - layer(x[:1]).detach()
    std = softplus(layer.get_parameter("weight_rho")).detach()
    variance = (std.square() * x[0, 0].square()).sum(1)
    assert_mean(noise.flatten(1), torch.zeros(4).double())
    assert_covariance(noise.flatten(1), torch.diag(variance.repeat(2)))  # under one weight, tokens would be equal


def test_the_model_is_plain_again_afterwards() -> None:
    model = bayesian()
    with signs_per_token(model):
        pass
    assert not any(layer._forward_hooks for layer in posterior_layers(model))
    assert len(posterior_layers(model)) == 4
