"""Numbers and durations as the report page shows them."""

import re

import pytest

from flipout.experiments.report.values import duration, number


def text(shown: str) -> str:
    return re.sub("<[^>]*>", "", shown).replace("\u202f", " ").replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (0.123456, "0.1235"),
        (-78.8, "−78.8"),
        (9999.96, "10000"),
        (12345.6, "12,346"),
        (3.84e-7, "3.84 × 10−7"),
        (-2e9, "−2 × 109"),
        (13002, "13,002"),
        (1024, "1024"),
        ("1.46 ± 0.02", "1.46 ± 0.02"),
        ("2.027e+02 ± 2.0e+00", "2.027 × 102 ± 2.0"),
        ("10.5e-05 <b>", "10.5 × 10−5 &lt;b&gt;"),
    ],
)
def test_numbers_have_four_digits(value, shown):
    assert text(number(value)) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.0, "0 s"), (4.23, "4.2 s"), (59.7, "1 min 0 s"), (123.4, "2 min 3 s"), (7444, "2 h 4 min"), (1e5, "1 d 3 h")],
)
def test_durations_are_for_people(seconds, shown):
    assert text(duration(seconds)) == shown
