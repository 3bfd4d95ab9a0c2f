"""Small measurements of a linear regression."""

from typing import Any

import torch
from torch import nn

import flipout
from tests.variance import regression

ERRORS = 5.0  # standard errors


def measured(**options) -> flipout.variance.Measurements:
    return flipout.variance.measure(
        options.pop("model", None) or regression.model(),
        regression.loss,
        regression.data,
        generator=torch.Generator().manual_seed(1),
        **options,
    )


def small(**options: Any) -> flipout.variance.Measurements:
    net = flipout.perturb(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)), flipout.Gaussian(0.1))
    settings = {"data": (torch.randn(9, 4), torch.randint(3, (9,))), "loss": nn.functional.cross_entropy, **options}
    net.train(settings.pop("train", False))
    loss, data = settings.pop("loss"), settings.pop("data")
    return flipout.variance.measure(net, loss, data, **{"batch_sizes": [2], "draws": 4, "repeats": 2, **settings})
