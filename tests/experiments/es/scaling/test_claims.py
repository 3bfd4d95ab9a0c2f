"""Cores that a device replaces are counted, and priced."""

import pytest

from flipout.experiments.es.scaling import claims
from flipout.experiments.running.results import REPORTED
from tests.experiments.es.scaling.toys import times


def test_cores_replaced_and_their_price():
    several = {"FC 32": times(1.0, 50.0), "FC 512": times(1.0, 400.0), "ConvLe 1": times(1.0, 4000.0)}
    cores, cheaper, ideal, growth = claims.reported(several, device_price=8.0, core_price=0.4)
    assert {check.kind for check in (cores, cheaper, ideal, growth)} == {REPORTED}
    assert (cores.value, cores.holds) == (pytest.approx(50), True)
    assert (cheaper.value, cheaper.holds) == (pytest.approx(2.5), False)
    assert (ideal.value, ideal.holds) == (pytest.approx(2.0), True)
    assert (growth.value, growth.holds) == (pytest.approx(8.0), True)
