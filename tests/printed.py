"""What code prints, compared with what stands on a page: the same words, and nearly the same numbers."""

import re

import pytest

NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"


def assert_printed(text: str, quoted: str) -> None:
    """Check that a text has the words of the quoted one, and numbers close to its numbers."""
    assert re.sub(NUMBER, "", text).split() == re.sub(NUMBER, "", quoted).split()
    # Other processors and versions of torch round otherwise, and a thousand steps of training amplify that.
    assert _numbers(text) == pytest.approx(_numbers(quoted), rel=0.3, abs=0.15)


def _numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(NUMBER, text)]
