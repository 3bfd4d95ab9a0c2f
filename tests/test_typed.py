"""JSON is read as typed values, or refused by its place, what was found and what was expected."""

from dataclasses import dataclass
from typing import Any

import pytest

from flipout._typed import Mismatch, parse_json, typed


@dataclass
class Point:
    x: float
    label: str = ""
    count: int | None = None


def test_values_become_what_they_are_meant_to_be() -> None:
    assert typed([{"x": 1}, {"x": 2.5, "label": "a", "count": 3}], list[Point]) == [Point(1.0), Point(2.5, "a", 3)]
    assert isinstance(typed(1, float), float)
    assert typed({"a": [True]}, dict[str, list[bool]]) == {"a": [True]}
    assert typed([1, 2], tuple[int, ...]) == (1, 2)


@pytest.mark.parametrize(
    ("content", "kind", "says"),
    [
        ({"x": "1"}, Point, "the file.x: '1' found; expected a number"),
        ({"x": True}, Point, "the file.x: True found; expected a number"),
        ({"x": 10**400}, Point, "found; expected a number"),
        ({"x": 1, "count": 2.0}, Point, "the file.count: 2.0 found; expected a whole number"),
        ({"x": 1, "count": 2**63}, Point, "found; expected a whole number"),
        ({"x": 1, "label": None}, Point, "the file.label: None found; expected a text"),
        ({}, Point, "the file: no field 'x'; expected x, label, count"),
        ({"x": 1, "y": 2}, Point, "the file: an unknown field 'y'; expected x, label, count"),
        (3, Point, "the file: 3 found; expected an object"),
        ({}, list[int], "the file: {} found; expected a list"),
        ([0, "1"], list[int], r"the file[1]: '1' found; expected a whole number"),
        ([], dict[str, int], "the file: [] found; expected an object"),
        (0, bool, "the file: 0 found; expected true or false"),
    ],
)
def test_what_is_of_another_type_is_refused(content: Any, kind: Any, says: str) -> None:
    with pytest.raises(Mismatch) as caught:
        typed(content, kind)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff", b"9" * 5000, b"nul"])
def test_what_is_not_json_is_refused(content: bytes) -> None:
    with pytest.raises(Mismatch):
        parse_json(content)


def test_a_message_is_one_line_whatever_a_file_says() -> None:
    assert str(Mismatch("a\nb\x1b[31m\u202eé")) == "a\\nb\\x1b[31m\\u202eé"
