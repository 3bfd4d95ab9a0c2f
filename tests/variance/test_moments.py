"""Streamed variances and covariances are those of all gradients at once."""

import pytest
import torch

from flipout.variance._moments import GradientMoments


def test_streamed_moments_are_those_of_all_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (1e3 + torch.randn(12, 3, 2, dtype=torch.float64, generator=generator) for _ in range(2))
    moments = GradientMoments()
    for part in (slice(0, 5), slice(5, 6), slice(6, 12)):
        moments.add(({"w": first[part]}, {"w": second[part]}))
    variance = (first.var(0).mean() + second.var(0).mean()) / 2
    assert moments.variance()["w"] == pytest.approx(variance.item())
    centred = (first - first.mean(0)) * (second - second.mean(0))
    assert moments.covariance()["w"] == pytest.approx((centred.sum(0) / 11).mean().item())


def test_one_draw_on_each_batch_has_no_covariance() -> None:
    moments = GradientMoments()
    moments.add(({"w": torch.tensor([[1.0], [2.0], [4.0]])},))
    assert moments.variance()["w"] == pytest.approx(7 / 3)
    assert moments.covariance() == {}
