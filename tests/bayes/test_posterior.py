"""The posterior of a model lists each Parameter with a learned spread once."""

import pytest
import torch
from torch import nn

import flipout
from flipout.bayes import Normal
from flipout.bayes._posterior import posteriors
from flipout.errors import InvalidArgument, NotPerturbed
from tests.networks import GAUSSIAN, mlp


def test_means_and_standard_deviations() -> None:
    model = flipout.perturb(mlp(), flipout.MeanField(std=0.2, prior=Normal(0.0, 1.0)))
    first, second = posteriors(model)
    assert (first.name, first.local, second.name) == ("0.weight", "weight", "2.weight")
    assert torch.equal(first.mean, model[0].weight)
    torch.testing.assert_close(first.std, torch.full_like(first.mean, 0.2))
    assert torch.equal(first.marginal_std, first.std)
    assert first.quiet is None
    assert isinstance(first.prior, Normal)


def test_half_precision_is_widened_and_the_padding_row_is_quiet() -> None:
    table = nn.Embedding(5, 2, padding_idx=3).bfloat16()
    (posterior,) = posteriors(flipout.perturb(table, flipout.MeanField(std=0.2), where="weight"))
    assert posterior.mean.dtype == posterior.std.dtype == torch.float32
    assert posterior.quiet is not None
    assert posterior.quiet.flatten().tolist() == [False, False, False, True, False]


def test_tied_weights_appear_once_and_need_one_spread() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    assert [found.name for found in posteriors(flipout.perturb(model, flipout.MeanField()))] == ["0.weight"]
    apart = nn.Sequential(*(flipout.nn.Linear(3, 3, distribution=flipout.MeanField()) for _ in range(2)))
    apart[1].weight = apart[0].weight
    with pytest.raises(InvalidArgument, match="one Parameter with two learned spreads"):
        posteriors(apart)


def test_noise_that_is_not_learned_has_no_posterior() -> None:
    with pytest.raises(NotPerturbed, match=r"no learned spreads.*is fixed, Gaussian\(.*first with flipout\.freeze"):
        posteriors(flipout.perturb(mlp(), GAUSSIAN))
