"""Networks see standardised training rows, and a search sees no test row."""

import pytest
import torch

from flipout.experiments.data import Regression
from flipout.experiments.uci.parts import final_parts, search_parts


@pytest.fixture(scope="module")
def regression() -> Regression:
    """Row n has the target n. The second feature is constant."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(60, dtype=torch.float64)
    x = torch.stack((y**2, torch.full_like(y, 3.0)), 1)
    return Regression(x, y, tuple(torch.randperm(60, generator=generator)[:6] for _ in range(3)), "toy")


def targets(parts, split: int) -> list[set[int]]:
    """Return which rows are fitted to and which are held out: the targets name them."""
    fitted, held = (values[split] * parts.scale[split] for values in (parts.y, parts.y_held))
    lowest = min(fitted.min(), held.min())
    return [{round(float(value - lowest)) for value in values} for values in (fitted, held)]


def test_the_final_parts_are_those_of_the_split(regression):
    parts = final_parts(regression, 3)
    assert parts.x.shape == (3, 54, 2)
    assert parts.x_held.shape == (3, 6, 2)
    for split in range(3):
        fitted, held = targets(parts, split)
        assert held == set(regression.tests[split].tolist())
        assert fitted == set(range(60)) - held
    assert parts.scale[0] == pytest.approx(float(regression.y[regression.train_rows(0)].std()))


def test_a_search_sees_no_test_row(regression):
    parts = search_parts(regression, 3, torch.Generator().manual_seed(1))
    assert parts.x.shape[1] == 43
    assert parts.x_held.shape[1] == 11
    for split in range(3):
        names = [(values[split] * parts.scale[split]).double() for values in (parts.y, parts.y_held)]
        rows = torch.cat(names)
        expected = regression.train_rows(split).double()
        # The same rows up to the mean that was taken off.
        assert torch.allclose((rows - rows.mean()).sort().values, (expected - expected.mean()).sort().values, atol=1e-4)


def test_what_is_fitted_to_is_standardised_and_a_constant_feature_is_zero(regression):
    for parts in (final_parts(regression, 2), search_parts(regression, 2, torch.Generator().manual_seed(1))):
        assert parts.x.dtype == parts.y.dtype == torch.float32
        assert torch.allclose(parts.x.mean(1), torch.zeros(2, 2), atol=1e-5)
        assert torch.allclose(parts.x[..., 0].std(1), torch.ones(2), atol=1e-5)
        assert torch.allclose(parts.y.std(1), torch.ones(2), atol=1e-5)
        assert not parts.x[..., 1].any()
        assert not parts.x_held[..., 1].any()
