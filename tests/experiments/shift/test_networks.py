"""The residual network has its layers; dropout alone can be left on."""

import pytest
import torch
from torch import nn

from flipout.experiments.shift.networks import ResidualBlock, dropout_on, moved, resnet


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_resnet_has_six_layers_a_block_and_two(blocks):
    network = resnet(3, 10, 4, blocks)
    counted = [
        layer
        for layer in network.modules()
        if isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3))
    ]
    assert len(counted) == 6 * blocks + 2
    assert network(torch.randn(2, 3, 32, 32)).shape == (2, 10)


def test_a_block_adds_its_shortcut():
    block = ResidualBlock(3, 3, 1, 0.0).eval()
    nn.init.zeros_(block.norm2.weight)
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(block(x), x.relu())
    assert isinstance(ResidualBlock(3, 6, 2, 0.0).shortcut, nn.Conv2d)


def test_dropout_alone_is_left_on():
    network = resnet(1, 10, 4, 1, 0.5)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    dropout_on(network)
    x = torch.randn(4, 1, 8, 8)
    assert not torch.equal(network(x), network(x))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(network.eval()(x), network(x))


def test_moved_pictures_are_shifted_and_mirrored_whole():
    """Every column is numbered, so the numbers say which shift and which mirror a picture had."""
    x = torch.arange(1.0, 17.0).expand(200, 2, 16, 16).clone()
    found = moved(x, torch.Generator().manual_seed(0))
    assert found.shape == x.shape
    steps = set()
    for picture in found:
        inner = picture[0, 8, 2:-2]  # padding reaches in by two pixels at most
        difference = inner.diff().unique()
        assert difference.tolist() in ([1.0], [-1.0])
        forward = inner if difference > 0 else inner.flip(0)
        steps.add((float(difference), float(forward[0]) - 3))
        assert torch.equal(picture[0], picture[1])
    assert steps == {(sign, shift) for sign in (1.0, -1.0) for shift in (-2.0, -1.0, 0.0, 1.0, 2.0)}
