"""Claims about variance curves hold on curves of the right form, and fail on others."""

import pytest

from flipout.experiments.running.results import MUST_HOLD, REPORTED
from flipout.experiments.variance import claims
from flipout.variance import Decomposition, Measurements, Record, Term

SIZES = (1, 4, 16, 64)


def record(scheme: str, size: int, variance: float, error: float = 0.02) -> Record:
    half = variance * error
    return Record("fc1.weight", scheme, size, variance, half, variance - 2 * half, variance + 2 * half, 200, 50)


def curves(floor: float = 0.3, flipout: float = 1.0) -> Measurements:
    shared = [record("shared", n, floor + (1 - floor) / n) for n in SIZES]
    return Measurements([*shared, *(record("flipout", n, flipout / n) for n in SIZES)])


TERMS = [Decomposition("fc1.weight", Term(1.0, 0.01), Term(0.2, 0.002), Term(0.1, 0.001), Term(0.3, 0.003))]


def test_schemes_start_together_or_fail() -> None:
    assert claims.start_together(curves()).holds
    apart = claims.start_together(curves(flipout=2.0))
    assert not apart.holds
    assert apart.value == pytest.approx(0.5)
    assert apart.kind == MUST_HOLD


def test_flipout_is_nowhere_above_and_below_at_the_largest_batch() -> None:
    for flipped, expected in ((1.0, [True, True]), (40.0, [False, False])):
        checks = claims.below(curves(flipout=flipped), "flipout", ["shared"], REPORTED)
        assert [check.holds for check in checks] == expected
        assert [check.id for check in checks] == ["not-above-flipout", "below-flipout"]


def test_the_form_of_a_curve() -> None:
    assert claims.form(curves()).holds
    bent = Measurements([record("flipout", n, 1 / n**0.5) for n in SIZES])
    assert not claims.form(bent).holds


def test_curves_are_predicted_from_their_terms() -> None:
    measured = Measurements([record("shared", n, TERMS[0].predict("shared", n).value) for n in SIZES])
    assert claims.predicted(measured, TERMS).holds
    other = [Decomposition("fc1.weight", Term(2.0, 0.01), *(getattr(TERMS[0], t) for t in ("beta", "gamma", "both")))]
    assert not claims.predicted(measured, other, "fc").holds
    assert claims.predicted(measured, other, "fc").id == "predicted/fc"


def test_slopes_knees_and_orders() -> None:
    (slope,) = claims.slopes(curves(), shown=("conv1",))
    assert slope.holds
    assert slope.value == pytest.approx(-1, abs=0.01)
    assert slope.figure is None  # the figure does not show fc1
    (flat,) = claims.slopes(curves(), scheme="shared")
    assert not flat.holds
    (knee,) = claims.levelling(TERMS)
    assert knee.value == pytest.approx(1.0 / 0.3)
    assert not knee.holds  # 3.3 is below 100
    (order,) = claims.orders(TERMS)
    assert order.value == pytest.approx(2.0)  # β / γ
    assert not order.holds


def test_a_claim_that_its_interval_cannot_decide_is_left_out() -> None:
    pairs = [(record("a", 1, 1.0, 0.5), record("b", 1, 1.1, 0.5))]
    assert claims.on_average_below("x", "a is below b", MUST_HOLD, pairs, "variance") == []
    (reported,) = claims.on_average_below("x", "a is below b", REPORTED, pairs, "variance")
    assert not reported.holds
