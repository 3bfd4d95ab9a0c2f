"""Claims of evolution strategies hold and fail on curves that are made to."""

import pytest
import torch

from flipout.experiments.es import claims
from flipout.experiments.es.curves import EsCurves
from flipout.experiments.running.results import MUST_HOLD, REPORTED
from tests.experiments.es.toys import curve


def curves(end: float = 0.0, **slowness: float) -> EsCurves:
    return EsCurves(
        curve(name, seed, factor * 1.1**seed, end if name == "FlipES" else 0.0)
        for seed in range(3)
        for name, factor in slowness.items()
    )


def test_flipout_never_varies_less():
    generator = torch.Generator().manual_seed(0)

    def scatter(size: float) -> dict[str, dict[str, list[float]]]:
        return {"along": {}, "scatter": {"w": (size * (1 + 0.1 * torch.randn(60, generator=generator))).tolist()}}

    def holds(spread: float) -> list[bool]:
        checks, numbers = claims.variances({"FlipES": scatter(spread), "IdealES": scatter(1.0)}, 20, 1000)
        assert numbers["variance of FlipES / IdealES, were fitness linear"] == 1 + 2 * 19 / 1001
        assert [check.kind for check in checks] == [MUST_HOLD, REPORTED]
        return [check.holds for check in checks]

    assert holds(1.0) == [True, True]
    assert holds(1.5) == [True, False]
    assert holds(0.8) == [False, True]


def test_no_loss_is_within_the_spread_of_the_seeds():
    def holds(curves_seen: EsCurves) -> list[bool]:
        return [check.holds for check in claims.no_loss(curves_seen, "FlipES", "IdealES")]

    assert all(holds(curves(FlipES=10.0, IdealES=10.0)))
    assert not any(holds(curves(FlipES=30.0, IdealES=10.0)))
    assert holds(curves(FlipES=9.0, IdealES=10.0))[-1]


def test_updates_are_compared_where_evolution_strategies_end():
    check = claims.comparable(curves(FlipES=30.0, backprop=10.0), "FlipES")
    assert (check.kind, check.holds) == (REPORTED, False)
    assert check.value == pytest.approx(3.0, rel=0.1)
    assert claims.comparable(curves(FlipES=15.0, backprop=10.0), "FlipES").holds
    slow = claims.comparable(curves(backprop=100.0, FlipES=10.0), "FlipES")
    assert slow.value == pytest.approx(0.1, rel=0.2)  # at the level of the slower one
    assert slow.holds
    lower = claims.lower(curves(FlipES=30.0, backprop=10.0, end=0.1), "backprop", "FlipES")
    assert lower.holds
    assert lower.value is not None
    assert lower.value < -10
