"""The time left is learned from what is done: by kind, and most from the last items."""

import pytest

from flipout.experiments.running.pace import Pace


def after(pace: Pace, *seconds: float) -> Pace:
    for taken in seconds:
        pace.done(taken)
    return pace


def test_equal_items_take_equal_time():
    pace = after(Pace(range(10), lambda _: 1.0), 2.0, 2.0, 2.0)
    assert pace.left == pytest.approx(14.0)
    assert pace.share == pytest.approx(0.3)


def test_weights_count_within_a_kind():
    pace = after(Pace([1, 9], float), 2.0)
    assert pace.left == pytest.approx(18.0)


def test_kinds_have_speeds_of_their_own():
    """A kind that is 30 times as slow is known as such after its first item."""
    items = [("fast", 1), ("slow", 1), ("fast", 10), ("slow", 10)]
    pace = after(Pace(items, lambda item: item[1], lambda item: item[0]), 1.0)
    assert pace.left == pytest.approx(21.0)  # nothing is known of the slow ones
    assert after(pace, 30.0).left == pytest.approx(310.0)


def test_recent_items_count_most():
    """A machine that becomes busy halfway: the estimate follows."""
    pace = after(Pace(range(40), lambda _: 1.0), *[1.0] * 10, *[3.0] * 10)
    assert 20 * 2.4 < pace.left < 20 * 3.0


def test_what_a_loop_inside_of_an_item_knows_counts():
    """The second of four items has become slow: 30 s of it are over, and 20 s are left."""
    pace = after(Pace(range(4), lambda _: 1.0), 10.0)
    assert pace.left_within(30.0, 20.0) == pytest.approx(20 + 2 * 10)
    assert pace.left_within(4.0, 1.0) == pytest.approx(6 + 2 * 10)  # another loop may follow in this item
    first = Pace([1, 3], float)
    assert first.left_within(2.0, 8.0) == pytest.approx(8 + 3 * 10)
    kinds = after(Pace([("a", 1), ("b", 1), ("b", 2), ("a", 1)], lambda item: item[1], lambda item: item[0]), 5.0)
    assert kinds.left_within(10.0, 10.0) == pytest.approx(10 + 2 * 20 + 5)
    assert after(Pace([1], float), 1.0).left_within(1.0, 1.0) == 0.0
    assert Pace([0], float).left_within(1.0, 2.0) == 2.0


def test_the_end_is_the_end():
    pace = after(Pace([0.1, 0.2, 0.3], float), 1.0, 2.0, 3.0)
    assert (pace.left, pace.share) == (0.0, 1.0)
    nothing = Pace([], float)
    assert (nothing.left, nothing.share) == (0.0, 1.0)
    weightless = after(Pace([1, 2], lambda _: 0.0), 5.0)
    assert weightless.left == 0.0


def test_long_loops_cost_little():
    """The waiting items are not added up again after each item: that would be 5·10⁹ additions here."""
    pace = Pace(range(100_000), lambda _: 1.0)
    for _ in range(100_000):
        pace.done(1e-3)
        assert pace.left >= 0
