"""Predictions of the theorem from given α, β and γ."""

import math

import pytest

from flipout.errors import InvalidArgument
from flipout.variance import Decomposition, Term

DECOMPOSITION = Decomposition(
    "0.weight", Term(64.0, 1.0, 19), Term(2.0, 0.3, 99), Term(1.0, 0.2, 99), Term(3.0, 0.4, 99)
)


@pytest.mark.parametrize(("scheme", "covariance"), [("independent", 0.0), ("shared", 3.0), ("flipout", 1.0)])
@pytest.mark.parametrize(("size", "bases"), [(1, 1), (16, 1), (16, 4)])
def test_prediction(scheme: str, covariance: float, size: int, bases: int) -> None:
    predicted = DECOMPOSITION.predict(scheme, size, bases)
    assert predicted.value == pytest.approx(64 / size + (size / bases - 1) / size * covariance)


def test_the_error_of_a_prediction() -> None:
    predicted = DECOMPOSITION.predict("flipout", 16)
    squares = (1.0 / 16) ** 2, (0.2 * 15 / 16) ** 2
    assert predicted.error == pytest.approx(math.sqrt(sum(squares)))
    assert predicted.freedom == pytest.approx(sum(squares) ** 2 / (squares[0] ** 2 / 19 + squares[1] ** 2 / 99))


def test_knee() -> None:
    assert DECOMPOSITION.knee == 64 / 3


def test_refusals() -> None:
    with pytest.raises(InvalidArgument, match="the theorem covers only independent, shared, flipout"):
        DECOMPOSITION.predict("local_reparam", 4)
    with pytest.raises(InvalidArgument, match="batch_size=0, bases=1: expected at least 1"):
        DECOMPOSITION.predict("shared", 0)


def test_reprs_are_short() -> None:
    assert repr(Term(1 / 3, 1 / 70)) == "Term(0.3333 ± 0.014)"
    assert repr(DECOMPOSITION) == "Decomposition(0.weight: α = 64 ± 1, β = 2 ± 0.3, γ = 1 ± 0.2)"
