"""Questions about one layer."""

from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import flipout
from flipout.nn.layers import is_noisy_now, is_perturbed, label_of, needs_root_draw, own_parameter, parameter_of
from tests.networks import GAUSSIAN, mlp


def test_names() -> None:
    model = flipout.perturb(mlp(), GAUSSIAN)
    assert [is_perturbed(module) for module in model] == [True, False, True]
    assert label_of(model[2]) == "2 (Linear)"
    assert label_of(flipout.nn.Linear(2, 2, distribution=GAUSSIAN)) == "Linear"


def test_noise_comes_in_training_mode_or_with_a_context() -> None:
    model = flipout.perturb(mlp(), GAUSSIAN)
    layer = model[0]
    assert is_noisy_now(layer)
    assert needs_root_draw(layer)
    model.eval()
    assert not is_noisy_now(layer)
    with flipout.sampling(model):
        assert is_noisy_now(layer)
    with flipout.hold(model):
        assert is_noisy_now(layer)
        assert not needs_root_draw(layer)


def test_parameters_by_dotted_names() -> None:
    attention = nn.MultiheadAttention(4, 2)
    assert own_parameter(attention, "out_proj.weight") is attention.out_proj.weight
    assert parameter_of(attention, "out_proj.weight") is attention.out_proj.weight
    assert own_parameter(nn.Linear(2, 2, bias=False), "bias") is None
    computed: Any = weight_norm(nn.Linear(2, 2))
    assert own_parameter(computed, "weight") is None
    assert torch.equal(parameter_of(computed, "weight"), computed.weight)
