"""Texts as ids."""

import pytest

from flipout.experiments.running.names import slug


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("WD + flipout, tied", "wd-flipout-tied"),
        ("lstm.weight_hh_l0[i]", "lstm.weight_hh_l0[i]"),
        (" – FlipES 1,600 – ", "flipes-1600"),
        ("α / β", "α-β"),
    ],
)
def test_slug(text: str, expected: str) -> None:
    assert slug(text) == expected
