"""Networks have the paper's sizes."""

import torch

from flipout.experiments.training.networks import convle


def test_convle_is_the_papers():
    network = convle((1, 28, 28), 10)
    assert [tuple(p.shape) for p in network.parameters() if p.dim() > 1] == [
        (32, 1, 5, 5),
        (64, 32, 5, 5),
        (1024, 64 * 7 * 7),
        (10, 1024),
    ]
    assert network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
