"""Data on the device, networks of the right kind, and randomness that nobody else notices."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from flipout.experiments.training.supervised import (
    Supervised,
    autocast,
    build_network,
    isolated_randomness,
    prepare,
)

DIGITS = Supervised(data="digits", hidden=(5,))


def test_images_are_standardised_by_the_training_set(run) -> None:
    prepared = prepare(DIGITS, run)
    assert abs(prepared.x.mean()) < 1e-5
    assert 0.9 < prepared.x.std() < 1.1
    assert prepared.x_test.mean() != 0
    assert len(prepared.x) == len(prepared.y)
    assert int(prepared.y.max()) + 1 == prepared.classes == 10


def test_networks(run) -> None:
    prepared = prepare(DIGITS, run)
    fc = build_network(DIGITS, prepared, nn.Tanh)
    assert [module.out_features for module in fc if isinstance(module, nn.Linear)] == [5, 10]
    assert any(isinstance(module, nn.Tanh) for module in fc)
    convle = build_network(Supervised(network="convle", width=1 / 16, data="digits"), prepared)
    assert any(isinstance(module, nn.Conv2d) for module in convle)
    for network in (fc, convle):
        assert network(prepared.x[:3]).shape == (3, 10)


def test_randomness_is_isolated(run) -> None:
    expected = torch.random.get_rng_state()
    with isolated_randomness(run):
        torch.rand(3)
    assert torch.equal(torch.random.get_rng_state(), expected)


def test_half_precision_is_for_gpus() -> None:
    config: Any = type("Config", (), {"precision": "bf16"})()
    assert isinstance(autocast(config, torch.device("cpu")), nullcontext)
