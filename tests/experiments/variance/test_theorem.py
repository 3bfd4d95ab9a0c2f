"""The networks that the theorem is tried on."""

from flipout.experiments.variance.study import StudyConfig
from flipout.experiments.variance.theorem import TheoremConfig


def test_a_network_that_is_left_out_is_not_studied() -> None:
    fc, convgg = StudyConfig(draws=7), StudyConfig(draws=8)
    assert TheoremConfig(fc=fc).studies == {"fc": fc}
    assert list(TheoremConfig(fc=fc, convgg=convgg).studies.items()) == [("fc", fc), ("convgg", convgg)]
