"""Rates that follow from validation losses."""

import math

import pytest

from flipout.errors import InvalidArgument
from flipout.experiments.language.schedules import Schedule, best


def test_the_rate_is_divided_when_a_loss_is_above_the_best_of_all_but_the_last():
    schedule = Schedule(rate=32.0, factor=4.0, patience=2)
    losses = [5.0, 4.0, 3.0, 3.5, 3.2, 3.1, 2.0, 2.5]
    #                        2: no loss is old enough to be compared with before the fourth
    assert schedule.divisions([5.0, 6.0, 7.0]) == []
    assert schedule.divisions([5.0, 6.0, 7.0, 7.0]) == [3]
    assert schedule.divisions(losses) == [5]  # 3.1 is above min(5, 4, 3); 3.2 was not above min(5, 4)
    assert [schedule.next(losses[:n]) for n in (0, 5, 6, 8)] == [32.0, 32.0, 8.0, 8.0]
    assert Schedule(patience=5).divisions([9.0] * 6) == []
    assert Schedule(patience=5).divisions([*[9.0] * 6, 9.5]) == [6]


def test_a_rest_after_a_division():
    rising = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert Schedule(patience=0).divisions(rising) == [1, 2, 3, 4, 5]
    assert Schedule(patience=0, rest=2).divisions(rising) == [1, 4]


def test_other_forms():
    cosine = Schedule(rate=2.0, form="cosine", epochs=4)
    assert [cosine.next([1.0] * n) for n in range(5)] == pytest.approx([2.0, 1 + 2**-0.5, 1.0, 1 - 2**-0.5, 0.0])
    assert Schedule(rate=2.0, form="constant").next([1.0, 5.0, 9.0] * 9) == 2.0


def test_ends():
    schedule = Schedule(epochs=5, stop=2)
    assert schedule.ended([]) is None
    assert schedule.ended([3.0, 2.0, 2.5]) is None
    assert schedule.ended([3.0, 2.0, 2.5, 2.5]) == "early stopping"
    assert schedule.ended([5.0, 4.0, 3.0, 2.0, 1.0]) == "epochs"
    assert schedule.ended([3.0, math.inf]) == "not finite"
    assert Schedule(epochs=9).ended([1.0] * 8) is None


def test_the_best_is_the_first_of_the_lowest():
    assert [best(losses) for losses in ([], [3.0], [3.0, 1.0, 1.0], [math.nan, 2.0], [math.inf, math.inf])] == [
        -1,
        0,
        1,
        1,
        0,
    ]


def test_bad_settings_are_refused():
    with pytest.raises(InvalidArgument, match=r"schedule\.epochs=0: expected at least 1"):
        Schedule(epochs=0)
    with pytest.raises(InvalidArgument, match=r"rate=0, factor=4\.0: expected a rate > 0"):
        Schedule(rate=0)
