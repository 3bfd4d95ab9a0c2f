"""A level is reached between two looks."""

import math
from dataclasses import replace

from flipout.experiments.large_batch.curves import Curves, LossCurve


def test_a_level_is_reached_between_two_looks():
    curve = LossCurve("shared", 0, [0, 10, 20, 30], [3.0, 2.0, 1.0, 1.5], [1.0] * 4, [0.0] * 4, [0.0] * 4, [])
    assert curve.reached("likelihood", 1.5) == 15
    assert curve.reached("total", 2.5) == 15
    assert curve.reached("likelihood", 3.0) == 0
    assert curve.reached("likelihood", 0.9) == math.inf
    assert curve.best("likelihood", 25) == 1.0
    assert curve.best("total", 10) == 3.0
    several = Curves([curve, replace(curve, seed=1, likelihood=[3.0, 2.5, 2.0, 1.2])])
    assert several.level("likelihood", 30) == 1.2  # all seeds have got there
    assert several.last("shared", "likelihood") == [1.5, 1.2]
