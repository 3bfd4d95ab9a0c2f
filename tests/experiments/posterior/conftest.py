"""Regressions whose posterior is known."""

import pytest
import torch

from flipout.experiments.posterior.regressions import RegressionConfig, Regressions


@pytest.fixture(scope="module")
def regressions() -> Regressions:
    return RegressionConfig(tasks=40, held_out=4000).drawn(torch.Generator().manual_seed(3))
