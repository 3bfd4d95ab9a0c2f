"""One weight per sequence has the mutual information of explicit samples; signs per token lose a part of it."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.nn.functional import softplus

import flipout
from flipout.experiments.lora.per_token import posterior_layers, signs_per_token
from flipout.nn import is_noisy

from ..statistics import ALPHA
from .models import bayesian, tokens

SAMPLES, BLOCKS = 3000, 30


@pytest.fixture(scope="module")
def model() -> Any:
    """A tiny Llama with random weights whose tokens have a direction in common, as those of real models have."""
    network = bayesian().float()
    inner = network.get_base_model()
    with torch.no_grad():
        torch.manual_seed(1)
        inner.model.embed_tokens.weight.add_(0.05 * torch.randn(16))
        inner.lm_head.weight.mul_(20)
    return network


def mutual_information(probabilities: Tensor) -> float:
    entropy = torch.special.entr(probabilities.mean(0)).sum() - torch.special.entr(probabilities).sum(-1).mean()
    return float(entropy)


def estimate(probabilities: Tensor) -> tuple[float, float]:
    """Return the mutual information in nats, and its standard error by the jackknife over blocks of samples."""
    wide = probabilities.double()
    blocks = wide.unflatten(0, (BLOCKS, -1))
    left_out = [mutual_information(torch.cat((blocks[:b], blocks[b + 1 :])).flatten(0, 1)) for b in range(BLOCKS)]
    return mutual_information(wide), float(np.std(left_out) * np.sqrt(BLOCKS - 1))


def copies(ids: Tensor) -> dict[str, Tensor]:
    return {"input_ids": ids.expand(SAMPLES, -1)}


def answers(model: Any, ids: Tensor) -> Tensor:
    return model(**copies(ids)).logits[:, -1].detach().softmax(-1)


def explicit(model: Any, ids: Tensor) -> Tensor:
    """Every row has its own A, drawn with torch alone and multiplied out."""
    hooks = []
    for layer in posterior_layers(model):
        mean, rho = layer._parameters["weight"], layer._parameters["weight_rho"]
        assert mean is not None
        assert rho is not None
        weights = mean + softplus(rho) * torch.randn(SAMPLES, *mean.shape)
        hooks.append(layer.register_forward_hook(lambda _, args, __, w=weights: args[0] @ w.mT))
    found = answers(model, ids)
    for hook in hooks:
        hook.remove()
    return found


def test_per_sequence_is_right_and_per_token_is_not(model: Any) -> None:
    ids = tokens(1, 24)["input_ids"]
    torch.manual_seed(0)
    assert not any(is_noisy(layer) for layer in posterior_layers(model))
    with torch.no_grad():
        truth, truth_error = estimate(explicit(model, ids))
        with flipout.hold(model, seed=1, group=1):
            ours, error = estimate(answers(model, ids))
        with signs_per_token(model, base_per_row=True):
            per_token, per_token_error = estimate(answers(model, ids))
    limit = float(stats.norm.isf(ALPHA / 4))  # two comparisons, two sides
    assert truth > 20 * truth_error
    assert abs(ours - truth) < limit * np.hypot(error, truth_error)
    assert truth - per_token > limit * np.hypot(per_token_error, truth_error)
    assert per_token < 0.8 * truth


def test_a_single_token_shows_no_difference(model: Any) -> None:
    """Both ways agree where there is one token: what is lost is lost between the tokens."""
    ids = tokens(1, 1)["input_ids"]
    torch.manual_seed(0)
    with torch.no_grad():
        truth, truth_error = estimate(explicit(model, ids))
        with signs_per_token(model, base_per_row=True):
            per_token, error = estimate(answers(model, ids))
    assert abs(per_token - truth) < float(stats.norm.isf(ALPHA / 2)) * np.hypot(error, truth_error)
