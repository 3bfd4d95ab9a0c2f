"""Unknown pictures made from known ones, and the AUROC of their uncertainties."""

import pytest
import torch

from flipout.errors import InvalidArgument
from flipout.experiments.uncertainty import claims
from flipout.experiments.uncertainty.shifts import SHIFTS, inverted, rotated, shifted, shuffled, silhouettes
from flipout.experiments.uncertainty.work import UncertaintyConfig

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


def test_the_error_of_an_auroc_is_its_spread():
    generator = torch.Generator().manual_seed(1)
    found = [
        claims.auroc(torch.randn(80, generator=generator), torch.randn(60, generator=generator) + 1)
        for _ in range(1500)
    ]
    values = torch.tensor([estimate.value for estimate in found])
    errors = torch.tensor([estimate.error for estimate in found])
    assert abs(float(values.mean()) - 0.7602) < 0.005  # Φ(1 / √2)
    assert abs(float(errors.mean() / values.std()) - 1) < 0.06
    ties = claims.auroc(torch.zeros(5), torch.zeros(7))
    assert (ties.value, ties.error) == (0.5, 0.0)


def test_halves_that_differ_are_told_apart():
    generator = torch.Generator().manual_seed(2)
    inside, same = ({key: torch.randn(500, generator=generator) for key in claims.MEASURES} for _ in range(2))
    assert claims.control(inside, same).holds
    far = {**same, "epistemic": same["epistemic"] + 1}
    assert not claims.control(inside, far).holds
    checks = claims.separated(inside, {"far": far})
    assert [check.holds for check in checks] == [False, True]


def test_without_a_wrong_answer_nothing_is_told_apart():
    labels = torch.arange(4)
    sure = {"mean": torch.eye(4), "total": torch.zeros(4), "plain": torch.eye(4)}
    assert claims.errors_found(sure, labels).value is None
    assert claims.better_than_the_mean(sure, labels).value == 0


def test_bad_settings_are_refused():
    with pytest.raises(InvalidArgument, match="samples=4: expected at least 16"):
        UncertaintyConfig(samples=4)
