"""freeze() gives plain torch modules, at the mean or at the weights that one example of a held draw sees."""

import copy

import pytest
import torch
from torch import nn

import flipout
from flipout import errors
from tests.networks import Shared, TiedLM, convnet, encoder, mlp

DISTRIBUTIONS = [flipout.Gaussian(0.3), flipout.MeanField(std=0.3)]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("make", [mlp, convnet, encoder, TiedLM, Shared])
def test_freeze_undoes_perturb(make, distribution):
    model = make()
    before = {
        name: (type(m), [k for k in m.__dict__ if k != "flipout"], len(m._forward_hooks), len(m._forward_pre_hooks))
        for name, m in model.named_modules()
    }
    values = {k: v.clone() for k, v in model.state_dict().items()}
    assert flipout.freeze(flipout.perturb(model, distribution, where=lambda name: True)) is model
    after = {
        name: (type(m), list(m.__dict__), len(m._forward_hooks), len(m._forward_pre_hooks))
        for name, m in model.named_modules()
    }
    assert after == before
    assert model.state_dict().keys() == values.keys()
    assert all(torch.equal(v, values[k]) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks_always_called for m in model.modules())
    flipout.perturb(model, distribution)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("scheme", ["shared", "flipout", flipout.Flipout(group=2), "independent"])
@pytest.mark.parametrize("example", [0, 2])
def test_freeze_at_a_draw_is_what_the_example_saw(distribution, scheme, example):
    model = flipout.perturb(mlp(), distribution, scheme=scheme, where="*")
    x = torch.randn(4, 4)
    with flipout.hold(model, seed=5, first=3):
        y = model(x)
        flipout.freeze(model, at="draw", example=example)
    assert type(model[0]) is nn.Linear
    torch.testing.assert_close(model(x)[example], y[example])


def test_freeze_at_a_draw_before_any_call():
    model = flipout.perturb(mlp(), flipout.Gaussian(0.3))
    x = torch.randn(4, 4)
    with flipout.hold(model, seed=5):
        y = model(x)
    with flipout.hold(model, seed=5):
        flipout.freeze(model, at="draw", example=3)
    torch.testing.assert_close(model(x)[3], y[3])


def test_freeze_inside_contexts_leaves_them_cleanly():
    model = flipout.perturb(mlp(), flipout.Gaussian(0.3))
    with flipout.sampling(model), flipout.using(model, scheme="shared"), flipout.hold(model):
        model(torch.randn(2, 4))
        flipout.freeze(model, at="draw")
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.equal(model(x := torch.randn(2, 4)), model(x))


def test_freeze_a_part():
    model = flipout.perturb(mlp(), flipout.Gaussian(0.3))
    flipout.freeze(model[0])
    assert type(model[0]) is nn.Linear
    assert not torch.equal(model(x := torch.randn(2, 4)), model(x))
    flipout.freeze(model)
    assert torch.equal(model(x), model(x))


def test_refusals_change_nothing():
    model = flipout.perturb(mlp(), flipout.Gaussian(0.3), scheme="local_reparam")
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(errors.InvalidArgument, match=r"freeze\(at='median'\): expected 'mean' or 'draw'"):
        flipout.freeze(model, at="median")  # pyright: ignore[reportArgumentType]
    with pytest.raises(errors.NoExampleWeights, match="no draw is held"):
        flipout.freeze(model, at="draw")
    with flipout.hold(model), pytest.raises(errors.NoExampleWeights, match="samples outputs"):
        flipout.freeze(model, at="draw")
    with flipout.using(model, scheme="flipout"), flipout.hold(model):
        model(torch.randn(2, 4))
        with pytest.raises(errors.InvalidArgument, match=r"example=2\): the held draw has 2 examples, 0 to 1"):
            flipout.freeze(model, at="draw", example=2)
        with pytest.raises(errors.InvalidArgument, match="example=-1"):
            flipout.freeze(model, at="draw", example=-1)
        with pytest.raises(
            errors.InvalidArgument, match=r"example=1\): the mean belongs to no single example; give at='draw'"
        ):
            flipout.freeze(model, example=1)
        with pytest.raises(errors.NoExampleWeights, match="a copy holds none"):
            flipout.freeze(copy.deepcopy(model), at="draw")
    with pytest.raises(errors.NotPerturbed, match="Sequential has no perturbed layers"):
        flipout.freeze(mlp())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert isinstance(model[0], flipout.nn.Linear)
