"""The checks refuse a wrong posterior."""

import pytest
import torch

from flipout.experiments.posterior import claims
from flipout.experiments.posterior.regressions import Regressions


def exactly(regressions: Regressions, mean: float = 1.0, std: float = 1.0) -> dict[str, torch.Tensor]:
    return {"mean": mean * regressions.mean, "std": std * regressions.best}


@pytest.mark.parametrize(("mean", "std", "holds"), [(1.0, 1.0, (1, 1)), (0.95, 1.0, (0, 1)), (1.0, 1.05, (1, 0))])
def test_wrong_means_and_spreads_are_refused(regressions, mean, std, holds):
    found = {"shared": exactly(regressions), "flipout": exactly(regressions, mean, std)}
    assert tuple(check.holds for check in claims.recovered(regressions, found)) == holds


def test_wrong_intervals_are_refused(regressions):
    mean, variance = regressions.predictive(regressions.best[0].square().diag())
    for factor, holds in ((1.0, True), (0.9, False)):
        (check,) = claims.covered(regressions, {"flipout": {"mean": mean, "variance": factor * variance}})
        assert check.holds == holds
