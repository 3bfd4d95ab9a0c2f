"""Settings of the supervised experiments that make no sense are refused."""

from typing import Any

import pytest

from flipout.errors import InvalidArgument
from flipout.experiments.es.supervised import EsConfig
from flipout.experiments.es.training import EsTraining


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"seeds": 1}, "seeds=1"), ({"samples": (50,)}, "multiples of group=40"), ({"draws": 2}, "10")],
)
def test_bad_settings(settings: dict[str, Any], said: str):
    with pytest.raises(InvalidArgument, match=said):
        EsConfig(**settings)
    with pytest.raises(InvalidArgument, match="updates=0"):
        EsTraining(updates=0)
