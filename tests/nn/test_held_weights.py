"""`example_weights` returns what each example saw."""

import pytest
import torch
from torch import nn

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


@pytest.mark.parametrize(
    ("kind", "sizes", "groups"), [(nn.Conv2d, (3, 1), 1), (nn.ConvTranspose2d, (1, 3), 1), (nn.Conv2d, (4, 4), 4)]
)
def test_example_weights_of_channels_last_can_be_differentiated(kind, sizes, groups) -> None:
    """torch's backward pass refuses a kernel with one output whose first stride is not that of all others together."""
    layer = kind(*sizes, 3, groups=groups)
    plain = nn.functional.conv2d if kind is nn.Conv2d else nn.functional.conv_transpose2d
    model = flipout.perturb(layer, flipout.Gaussian(0.3)).to(memory_format=torch.channels_last)
    x = torch.randn(4, sizes[0], 6, 6).to(memory_format=torch.channels_last)
    with flipout.hold(model, seed=1):
        y, weights = model(x), flipout.example_weights(model)
        alone = [plain(x[n : n + 1], weights["weight"][n], layer.bias, groups=groups) for n in range(4)]
    torch.testing.assert_close(torch.cat(alone), y)
    (expected,) = torch.autograd.grad(y.square().sum(), layer.weight, retain_graph=True)
    (actual,) = torch.autograd.grad(torch.cat(alone).square().sum(), layer.weight)
    torch.testing.assert_close(actual, expected)
