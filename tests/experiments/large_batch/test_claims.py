"""Claims of large batches hold and fail on curves that are made to."""

import math

import pytest

from flipout.experiments.large_batch import claims
from flipout.experiments.large_batch.curves import Curves
from flipout.experiments.running.results import REPORTED
from tests.experiments.large_batch.toys import curve


def curves(flipout: float = 10.0, shared: float = 30.0, **others: float) -> Curves:
    speeds = {"shared": shared, "flipout": flipout, **others}
    return Curves(curve(name, seed, speed * 1.1**seed) for seed in range(3) for name, speed in speeds.items())


def test_three_times_slower_is_found_to_be_three_times_slower():
    checks, numbers, paper = claims.evaluate(curves(), (0.25, 1.0), {"shared": 1.0, "flipout": 2.0})
    fewer = [check for check in checks if check.id.startswith("fewer-iterations")]
    assert [check.kind for check in fewer] == [REPORTED] * 4
    for check in fewer:
        assert check.holds
        assert check.value == pytest.approx(3.0, rel=0.03)
        assert check.interval == pytest.approx((3.0, 3.0), rel=0.07)
    (faster,) = (check for check in checks if check.id == "by-the-clock")
    assert faster.value == pytest.approx(1.5, rel=0.03)
    assert numbers["flipout / shared: time of an iteration"] == 2
    assert paper.keys() <= numbers.keys()


def test_the_bar_is_on_the_likelihood():
    checks, *_ = claims.evaluate(curves(shared=20.0), (1.0,), {"shared": 1.0, "flipout": 1.0})
    likelihood, total = (check for check in checks if check.id.startswith("fewer-iterations"))
    assert likelihood.value == pytest.approx(2.0, rel=0.03)
    assert not likelihood.holds
    assert total.holds


@pytest.mark.parametrize("without", [curves(flipout=3000.0), curves(shared=math.inf)], ids=["never", "from the start"])
def test_what_has_no_ratio_does_not_hold(without):
    checks, numbers, _ = claims.evaluate(without, (1.0,), {"shared": 1.0, "flipout": 2.0})
    for check in checks:
        if check.id.startswith(("fewer-iterations", "by-the-clock")):
            assert (check.value, check.interval, check.holds) == (None, None, False)
    assert "none" in numbers.values()


def test_local_reparameterisation_is_compared_by_its_own_spread():
    def within(speed: float) -> list[bool]:
        checks, *_ = claims.evaluate(
            curves(local_reparam=speed), (1.0,), dict.fromkeys(("shared", "flipout", "local_reparam"), 1.0)
        )
        return [check.holds for check in checks if check.quantity == "difference in standard deviations"]

    assert within(10.0) == [True, True]
    assert within(5.0) == [False, False]
