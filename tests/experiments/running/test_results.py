"""Result files: what was found, in JSON that every reader takes."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from flipout.errors import DataError
from flipout.experiments.running.results import MUST_HOLD, REPORTED, Check, Figure, Result, seen_in, to_json

HOLDS = Check("α ≫ β", REPORTED, 12.5, (10.0, 15.0), True)
BROKEN = Check("shared = flipout at N = 1", MUST_HOLD, 2.0, None, False)
RESULT = Result(
    experiment="toy",
    preset="smoke",
    title="Figure 0",
    claim="β ≤ 1",
    setting="digits; 64–10",
    measured={"slope": -0.98, "steps": 7, "data": "digits"},
    paper={"slope": "≈ −1"},
    checks=(HOLDS, BROKEN, replace(HOLDS, holds=False)),
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
        "claim": "α ≫ β",
        "kind": "reported",
        "value": 12.5,
        "interval": [10.0, 15.0],
        "holds": True,
        "figure": None,
    }


def test_checks_say_which_figure_they_are_seen_in_and_older_files_do_not(tmp_path):
    seen = replace(RESULT, checks=(replace(HOLDS, figure="curve"), BROKEN))
    seen.write(tmp_path / "result.json")
    assert [check.figure for check in Result.read(tmp_path / "result.json").checks] == ["curve", None]
    held = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    for check in held["checks"]:
        del check["figure"]
    (tmp_path / "result.json").write_text(json.dumps(held), encoding="utf-8")
    assert Result.read(tmp_path / "result.json") == replace(RESULT, checks=(HOLDS, BROKEN))


def test_checks_are_led_to_a_figure_by_their_claim_where_it_is_there_and_they_do_not_say():
    said = replace(BROKEN, figure="another")
    result = replace(RESULT, checks=(HOLDS, BROKEN, said))
    for rule, expected in (
        (seen_in(curve="^α"), ["curve", None, "another"]),
        (seen_in(none="α", curve="="), [None, "curve", "another"]),
        (seen_in(), [None, None, "another"]),
        (lambda claim, settings: settings["shown"].get(claim), [None, "curve", "another"]),
    ):
        linked = result.linked(rule, {"shown": {BROKEN.claim: "curve"}})
        assert [check.figure for check in linked.checks] == expected
        assert replace(linked, checks=tuple(replace(check, figure=None) for check in linked.checks)) == replace(
            result, checks=(HOLDS, BROKEN, BROKEN)
        )


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
