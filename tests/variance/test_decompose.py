"""decompose estimates the α, β and γ of a regression for which they are known in closed form."""

import pytest
import torch

import flipout
from tests.variance import regression

ERRORS = 5.0  # standard errors: a false alarm once in two million


@pytest.fixture(scope="module")
def found() -> flipout.variance.Decomposition:
    (decomposition,) = flipout.variance.decompose(
        regression.model(),
        regression.loss,
        regression.data,
        pairs=3000,
        batch_size=64,
        examples=200_000,
        generator=torch.Generator().manual_seed(0),
    )
    return decomposition


@pytest.mark.parametrize("term", ["alpha", "beta", "gamma"])
def test_terms(found: flipout.variance.Decomposition, term: str) -> None:
    estimate, truth = getattr(found, term), regression.truth()[term]
    assert abs(estimate.value - truth) < ERRORS * estimate.error
    assert estimate.error < 0.2 * truth  # small enough for a wrong term to show


@pytest.mark.parametrize("scheme", ["independent", "shared", "flipout"])
@pytest.mark.parametrize("size", [1, 10, 1000])
def test_predictions(found: flipout.variance.Decomposition, scheme: str, size: int) -> None:
    predicted = found.predict(scheme, size)
    assert abs(predicted.value - regression.variance(scheme, size)) < ERRORS * predicted.error


def test_knee(found: flipout.variance.Decomposition) -> None:
    known = regression.truth()
    assert found.knee == pytest.approx(known["alpha"] / (known["beta"] + known["gamma"]), rel=0.2)
