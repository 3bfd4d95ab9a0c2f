"""The custom op of a compiled graph computes what `sample` computes."""

from typing import Any

import pytest
import torch

import flipout
from flipout.distributions.opaque import delta, scaled_noise
from flipout.distributions.scaled import ScaledNoise, sample
from flipout.draws.noise import NOISE, Origin


@pytest.mark.parametrize("softplus", [False, True])
@pytest.mark.parametrize("kind", ["normal", "sign"])
def test_it_is_the_eager_sample_with_its_gradient(kind: Any, softplus: bool) -> None:
    distribution = flipout.Gaussian(1.0) if kind == "normal" else flipout.Rademacher(1.0)
    scaled = ScaledNoise(distribution, (3, 4), torch.float32, Origin(11, NOISE, 0, 0), softplus)
    factor = torch.randn(3, 4, requires_grad=True)
    results = []
    for y in (
        delta(scaled, kind, factor, torch.tensor(5), torch.float32),
        sample(scaled, factor, torch.tensor(5), torch.float32),
    ):
        results.append((y, torch.autograd.grad(y.square().sum(), factor)[0]))
    torch.testing.assert_close(results[0], results[1])


def test_torch_accepts_its_registrations() -> None:
    arguments = (torch.randn(3, 4, requires_grad=True), torch.tensor(5), [3, 4], "normal", torch.float32, torch.float32)
    torch.library.opcheck(scaled_noise, (*arguments, False, True, 11, NOISE, 0, 0))
