"""Settings that do not belong together are refused."""

import pytest

from flipout.errors import InvalidArgument
from flipout.experiments.es.noise.work import EstimatesConfig


def test_bad_settings() -> None:
    with pytest.raises(InvalidArgument, match="whole groups of members"):
        EstimatesConfig(members=50, group=40)
    with pytest.raises(InvalidArgument, match="an even group"):
        EstimatesConfig(members=9, group=3)
    with pytest.raises(InvalidArgument, match="are unknown"):
        EstimatesConfig(networks=("resnet",))
    with pytest.raises(InvalidArgument, match="draws=1: expected at least 2"):
        EstimatesConfig(draws=1)
