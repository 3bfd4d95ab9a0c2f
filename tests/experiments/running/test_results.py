"""Result files are strict JSON, and are read as they were written."""

import json
import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from flipout.errors import DataError, InvalidArgument
from flipout.experiments.running.results import MUST_HOLD, REPORTED, Check, Figure, Result, to_json

HOLDS = Check("orders/fc1", "α ≫ β", REPORTED, "smaller ratio", 12.5, (10.0, 15.0), True)
BROKEN = Check("start", "shared = flipout at N = 1", MUST_HOLD, "ratio", 2.0, None, False)
RESULT = Result(
    experiment="toy",
    preset="smoke",
    title="Figure 0",
    claim="β ≤ 1",
    setting="digits; 64–10",
    measured={"slope": -0.98, "steps": 7, "data": "digits"},
    paper={"slope": "≈ −1"},
    checks=(HOLDS, BROKEN, replace(HOLDS, id="orders/fc2", holds=False, remark="one seed")),
    figures=(Figure("curve", "β against N"),),
)


def test_a_result_is_read_as_it_was_written(tmp_path):
    RESULT.write(tmp_path / "result.json")
    assert Result.read(tmp_path / "result.json") == RESULT
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_the_file_has_what_readers_ask_for(tmp_path):
    RESULT.write(tmp_path / "result.json")
    held = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert {"experiment", "preset", "measured", "paper", "checks"} <= held.keys()
    assert [check["kind"] for check in held["checks"]] == ["reported", "must_hold", "reported"]
    assert held["checks"][0] == {
        "id": "orders/fc1",
        "claim": "α ≫ β",
        "kind": "reported",
        "quantity": "smaller ratio",
        "value": 12.5,
        "interval": [10.0, 15.0],
        "holds": True,
        "figure": None,
        "remark": "",
    }


def test_checks_say_which_figure_shows_them(tmp_path):
    replace(RESULT, checks=(replace(HOLDS, figure="curve"), BROKEN)).write(tmp_path / "result.json")
    assert [check.figure for check in Result.read(tmp_path / "result.json").checks] == ["curve", None]


def test_ids_are_words_and_each_names_one_check():
    assert (HOLDS.family, BROKEN.family) == ("orders", "")
    assert replace(HOLDS, id="orders/fc/fc1").family == "orders/fc"
    for wrong in ("", "two words", "/orders", "orders/", "a//b", "a\n"):
        with pytest.raises(InvalidArgument, match="expected words without blanks"):
            replace(HOLDS, id=wrong)
    with pytest.raises(InvalidArgument, match="check 'start' is named twice"):
        replace(RESULT, checks=(BROKEN, replace(HOLDS, id="start")))


def test_a_remark_follows_the_claim():
    assert replace(HOLDS, remark="one seed").statement == "α ≫ β; one seed"
    assert HOLDS.statement == "α ≫ β"


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[3] / "results").glob("*/result.json")), ids=lambda path: path.parent.name
)
def test_committed_results_can_be_read(path):
    assert Result.read(path).experiment == path.parent.name


def test_only_a_claim_of_theory_can_be_broken():
    assert RESULT.broken == [BROKEN]
    assert replace(RESULT, checks=(HOLDS, replace(BROKEN, holds=True))).broken == []


def test_json_is_strict_readable_and_ends_in_a_line():
    endless = {"a": [math.inf, (-math.inf, 1.5)], "b": {"c": math.nan}, "β": True, "n": 3}
    text = to_json(endless)
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": [None, [None, 1.5]],
        "b": {"c": None},
        "β": True,
        "n": 3,
    }
    assert "β" in text
    assert text.endswith("}\n")
    assert json.loads(to_json([0.1, 1e-300, 2**60])) == [0.1, 1e-300, 2**60]
    with pytest.raises(TypeError):
        to_json({"path": Path("here")})


def test_what_is_not_finite_is_none_when_it_is_read(tmp_path):
    endless = replace(HOLDS, value=math.inf, interval=(-math.inf, math.inf))
    replace(RESULT, checks=(endless,)).write(tmp_path / "result.json")
    (check,) = Result.read(tmp_path / "result.json").checks
    assert (check.value, check.interval) == (None, (None, None))


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "[]",
        "{}",
        '{"checks": 3}',
        '{"checks": [{"claim": "x"}], "figures": []}',
        '{"checks": [], "figures": []}',
    ],
)
def test_what_is_no_result_is_refused(tmp_path, content):
    path = tmp_path / "result.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=r"(?s)result\.json is not the result of a run.*--resume"):
        Result.read(path)
