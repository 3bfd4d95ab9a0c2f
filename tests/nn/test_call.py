"""A call finds its pass, counts its examples, and refuses replicas."""

import pytest
import torch

import flipout
from flipout.errors import ExampleCount, Unsupported
from flipout.nn import is_noisy, perturbations
from flipout.nn.call import find_pass
from tests.networks import GAUSSIAN, mlp

X = torch.randn(5, 4)


def test_calls_in_a_hold_share_its_pass() -> None:
    model = flipout.perturb(mlp(), GAUSSIAN)
    with flipout.hold(model, seed=3):
        noise = perturbations(model[0], X, X.dtype)
        assert noise.session.examples == 5
        assert int(noise.draw.seed) == 3
        assert find_pass(model[2], X.device)[0] is noise.session
        with pytest.raises(ExampleCount, match=r"2 \(Linear\)"):
            perturbations(model[2], torch.randn(4, 6), X.dtype)


def test_a_layer_called_alone_begins_a_pass_of_its_own() -> None:
    model = flipout.perturb(mlp(), GAUSSIAN)
    torch.manual_seed(0)
    first, _, device, scheme = find_pass(model[0], X.device)
    assert device == X.device  # where a seed was read
    assert scheme.name == "flipout"
    assert find_pass(model[0], X.device)[0] is not first


def test_replicas_are_refused() -> None:
    layer = flipout.perturb(mlp(), GAUSSIAN)[0]
    assert is_noisy(layer)
    assert not is_noisy(layer.eval())
    layer._is_replica = True
    with pytest.raises(Unsupported, match="DistributedDataParallel"):
        is_noisy(layer)
