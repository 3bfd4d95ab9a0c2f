"""Shifted pictures are what the shift is called."""

import pytest
import torch

from flipout.experiments.uncertainty.shifts import SHIFTS, inverted, rotated, shifted, shuffled, silhouettes

PICTURES = torch.randint(256, (6, 1, 28, 28), generator=torch.Generator().manual_seed(0)).float()


def test_shifts_are_what_they_are_called():
    assert torch.equal(rotated(PICTURES, 0), PICTURES)
    torch.testing.assert_close(rotated(PICTURES, 90), torch.rot90(PICTURES, 1, (2, 3)), rtol=1e-4, atol=1e-2)
    assert (shifted(PICTURES)[:, :, :7] == 0).all()
    assert torch.equal(shifted(PICTURES)[:, :, 7:, 7:], PICTURES[:, :, :21, :21])
    assert torch.equal(inverted(inverted(PICTURES)), PICTURES)
    assert torch.equal(shuffled(shuffled(PICTURES)), PICTURES)
    assert torch.equal(shuffled(PICTURES)[:, :, :14, :14], PICTURES[:, :, 14:, 14:])
    mirrored = silhouettes(PICTURES)
    assert torch.equal(mirrored, mirrored.flip(3))
    assert (mirrored >= PICTURES).all()


@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize("size", [8, 28])
def test_shifts_keep_shape_range_and_the_pictures_themselves(name, size):
    x = PICTURES[:, :, :size, :size].clone()
    shifted = SHIFTS[name](x)
    assert shifted.shape == x.shape
    assert shifted.min() >= 0
    assert shifted.max() <= 255.01
    assert torch.equal(x, PICTURES[:, :, :size, :size])
    assert not torch.equal(shifted, x)
