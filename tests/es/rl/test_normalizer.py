"""Running statistics of observations."""

import pytest
import torch

from flipout.es import rl


def test_normalisation_is_that_of_salimans() -> None:
    normalizer = rl.Normalizer(3)
    x = torch.randn(50, 3) * torch.tensor([2.0, 1e-4, 1.0]) + torch.tensor([7.0, 0.0, -1.0])
    assert normalizer(x[:2]).equal(x[:2].clamp(-5, 5))  # mean 0, variance 1
    normalizer.add(x[:20])
    normalizer.add(x[20:].view(5, 6, 3))
    count, seen = 1e-2 + 50, x.double()
    mean = seen.sum(0) / count
    std = ((seen.square().sum(0) + 1e-2) / count - mean.square()).clamp_min(1e-2).sqrt()
    assert float(std[1]) == pytest.approx(0.1)
    torch.testing.assert_close(normalizer(x), ((seen - mean) / std).clamp(-5, 5).float())
    assert float(normalizer(x + 1000).max()) == 5


def test_it_is_shown_with_its_count() -> None:
    normalizer = rl.Normalizer(3, 2)
    normalizer.add(torch.zeros(7, 3, 2))
    assert repr(normalizer) == "Normalizer(3, 2, seen=7)"
