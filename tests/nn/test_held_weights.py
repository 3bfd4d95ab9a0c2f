"""`example_weights` returns what each example saw."""

import pytest
import torch

import flipout
from flipout import errors

X = torch.linspace(-1, 1, 12).view(3, 4)


def test_example_weights_are_what_each_example_saw(model):
    with flipout.hold(model):
        y = model[0](X)
        weights = flipout.example_weights(model[0])
    assert set(weights) == {"weight", "bias"}
    torch.testing.assert_close(y, torch.einsum("noi,ni->no", weights["weight"], X) + weights["bias"])
    assert torch.equal(weights["bias"], model[0].bias.expand(3, -1))


def test_example_weights_need_a_held_pass_with_a_batch(model):
    with pytest.raises(errors.NoExampleWeights, match=r"0 \(Linear\): no draw is held"):
        flipout.example_weights(model[0])
    with flipout.hold(model):
        with pytest.raises(errors.NoExampleWeights, match="Call the model first"):
            flipout.example_weights(model[0])
        with pytest.raises(errors.NotPerturbed, match="Sequential is not a perturbed layer"):
            flipout.example_weights(model)
        model(X)
        with pytest.raises(errors.NotPerturbed, match="Tanh"):
            flipout.example_weights(model[1])
    with flipout.sampling(model), pytest.raises(errors.NoExampleWeights, match="no draw is held"):
        flipout.example_weights(model[0])
