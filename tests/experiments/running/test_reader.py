"""The JSON files of a run: a record, or an error that names the field, what was found and what was expected."""

import json
from pathlib import Path

import pytest

from flipout._typed import Mismatch
from flipout.experiments.running.reader import Environment, SavedSettings, convert, decode, decode_lines

RESULTS = Path(__file__).parents[3] / "results"
SETTINGS = {"experiment": "toy", "preset": "smoke", "seed": 0}
SESSION = {"started": "2026-11-15T10:00:00+00:00", "seconds": 9}


@pytest.mark.parametrize("folder", sorted(RESULTS.iterdir()), ids=lambda path: path.name)
def test_the_files_of_committed_runs_are_read(folder):
    assert convert(decode((folder / "config.json").read_bytes()), SavedSettings).experiment == folder.name
    assert Environment.of(decode((folder / "environment.json").read_bytes())).sessions
    assert all({"piece", "step"} <= line.keys() for line in decode_lines((folder / "metrics.jsonl").read_bytes(), dict))


def test_settings_of_the_experiment_itself_are_left_alone():
    assert convert({**SETTINGS, "hidden": [32], "shown": ["fc1"]}, SavedSettings) == SavedSettings(
        "toy", "smoke", 0, ("fc1",)
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], r"the file: \[\] found; expected `object`, got `array`"),
        ({"experiment": "toy"}, "the file: object missing required field `preset`"),
        ({**SETTINGS, "seed": "1"}, "seed: '1' found; expected `int`, got `str`"),
        ({**SETTINGS, "shown": ["fc1", 2]}, r"shown\[1\]: 2 found; expected `str`, got `int`"),
        ({**SETTINGS, "preset": "x" * 5000}, None),
        ({**SETTINGS, "preset": ["x" * 5000]}, "preset: .{60,120} found; expected `str`, got `array`$"),
    ],
)
def test_what_no_config_says_is_refused_by_its_field(content, says):
    if says is None:
        assert convert(content, SavedSettings).preset == "x" * 5000
        return
    with pytest.raises(Mismatch, match=f"^{says}"):
        convert(content, SavedSettings)


def test_a_session_that_names_no_commit_has_that_of_the_environment():
    sessions = [SESSION, {**SESSION, "commit": None}, {**SESSION, "commit": "abc"}]
    found = Environment.of({"device": "cpu", "commit": "def", "sessions": sessions, "torch": "2.13"})
    assert [session.commit for session in found.sessions] == ["def", None, "abc"]


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1e999}', "[" * 100_000, "", '{"a": 1} x', '{"a": "\\ud800"}'])
def test_what_is_not_strict_json_is_refused(text):
    with pytest.raises(Mismatch):
        decode(text.encode())


@pytest.mark.parametrize("content", [b'{"\x81": 1}', b'"\x81"', b"\xff\xfe"])
def test_what_is_no_unicode_is_refused(content):
    with pytest.raises(Mismatch):
        decode(content)


def test_a_broken_line_is_named_by_its_number():
    first = json.dumps({"piece": "network", "step": 1}) + "\n"
    for second in ('{"piece": "netw', "3", "[]"):
        with pytest.raises(Mismatch, match=r"^line 2: "):
            decode_lines(f"{first}{second}\n{first}".encode(), dict)
        assert decode_lines(f"{first}{second}".encode(), dict) == [{"piece": "network", "step": 1}]
