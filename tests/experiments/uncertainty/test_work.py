"""Bad settings are refused."""

import pytest

from flipout.errors import InvalidArgument
from flipout.experiments.uncertainty.work import UncertaintyConfig


def test_bad_settings_are_refused():
    with pytest.raises(InvalidArgument, match="samples=4: expected at least 16"):
        UncertaintyConfig(samples=4)
