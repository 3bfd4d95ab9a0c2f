"""Corruptions keep the shape and the range of pictures, and grow with their strength."""

import pytest
import torch
from scipy import ndimage
from torch import Tensor

from flipout.experiments import data
from flipout.experiments.shift.corruptions import CORRUPTIONS, STRENGTHS, blur, contrast, noise, pixelate, rotation
from flipout.experiments.uncertainty.shifts import rotated
from tests.statistics import assert_mean, assert_variance


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="module")
def pictures() -> Tensor:
    """Digits of 32×32 pixels: eight have few smaller sizes."""
    return torch.nn.functional.interpolate(data.digits().x_test[:50].float(), (32, 32), mode="bilinear")


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_stronger_is_further_from_the_picture(name, pictures):
    changes = []
    for strength in STRENGTHS:
        corrupted = CORRUPTIONS[name](pictures, strength, generator())
        assert corrupted.shape == pictures.shape
        assert corrupted.dtype == torch.float32
        assert corrupted.min() >= -1e-3
        assert corrupted.max() <= 255 + 1e-3
        changes.append(float((corrupted - pictures).square().mean()))
    assert changes == sorted(changes)
    assert len({*changes}) == len(STRENGTHS)
    assert changes[0] > 0


def test_noise_has_its_size():
    grey = torch.full((10, 3, 32, 32), 127.5)
    added = (noise(grey, 2, generator()) - grey).flatten()
    assert_mean(added, 0.0)
    assert_variance(added, (255 * 0.08) ** 2, kurtosis=3.0)


def test_blur_is_that_of_scipy():
    x = 255 * torch.rand(1, 2, 32, 32, generator=generator())
    expected = ndimage.gaussian_filter(x.numpy(), (0, 0, 1.0, 1.0), mode="mirror", truncate=3.0)
    assert torch.allclose(blur(x, 3, generator()), torch.from_numpy(expected), atol=1e-2)


def test_contrast_keeps_the_mean_and_scales_the_rest(pictures):
    corrupted = contrast(pictures, 2, generator())
    assert torch.allclose(corrupted.mean((1, 2, 3)), pictures.mean((1, 2, 3)), rtol=1e-4)
    assert torch.allclose(corrupted.std((1, 2, 3)), 0.5 * pictures.std((1, 2, 3)), rtol=1e-4)


def test_pixelate_has_as_few_values_as_pixels_are_left():
    x = 255 * torch.rand(1, 1, 20, 20, generator=generator())
    assert len(pixelate(x, 4, generator()).unique()) == 8 * 8
    coarse = pixelate(x[..., :10, :10].repeat_interleave(2, 2).repeat_interleave(2, 3), 5, generator())
    assert len(coarse.unique()) == 6 * 6


def test_rotation_is_by_degrees(pictures):
    assert torch.equal(rotation(pictures, 4, generator()), rotated(pictures, 45))
