"""Measured gradients are those of training."""

from typing import Any

import pytest
import torch
from torch import nn

import flipout
from flipout.schemes import scheme_of
from flipout.variance._gradients import BatchGradients
from flipout.variance._sampler import Sampler

OPTIONS = [
    "shared",
    "flipout",
    "independent",
    "local_reparam",
    flipout.Flipout(group=2),
    flipout.Flipout(reuse_signs=True),
    flipout.Flipout(group=3, reuse_signs=True),
    flipout.Flipout(perturbation_dtype=torch.float8_e4m3fn),
    flipout.LowRank(1),
    flipout.LowRank(3),
    flipout.RankOne(),
]


@pytest.mark.parametrize("bases", [1, 2])
@pytest.mark.parametrize("at_once", [1, 64])
@pytest.mark.parametrize("scheme", OPTIONS, ids=str)
def test_measured_gradients_are_those_of_training(scheme: Any, at_once: int, bases: int) -> None:
    """Under every option of every scheme, they equal the gradients of a training step with the same draws."""
    torch.manual_seed(0)
    net = flipout.perturb(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), flipout.Gaussian(0.5))
    x, y, seeds = torch.randn(5, 8, 4), torch.randint(3, (5, 8)), torch.arange(5 * bases).view(bases, 5)
    sampler = Sampler(net, nn.functional.cross_entropy, (x, y), torch.Generator(), sub_batch=2, at_once=at_once)
    with flipout.using(net, scheme=scheme):
        batches = BatchGradients(sampler, 8, scheme_of(scheme), bases)
        step = min(batches.at_once, 5)
        found = [
            batches.captured([x[i : i + step], y[i : i + step]], seeds[:, i : i + step]) for i in range(0, 5, step)
        ]
        for name, parameter in net.named_parameters():
            expected = []
            for i in range(5):
                net.zero_grad()
                for part in range(0, 8, 2):
                    here = slice(part, part + 2)
                    with flipout.hold(net, seed=int(seeds[part * bases // 8, i]), first=part):
                        (nn.functional.cross_entropy(net(x[i, here]), y[i, here]) / 4).backward()
                assert parameter.grad is not None
                expected.append(parameter.grad.clone())
            torch.testing.assert_close(torch.cat([gradients[name] for gradients in found]), torch.stack(expected))
