"""The JSON files of a run: a record, or an error that names the field, what was found and what was expected."""

import json
from pathlib import Path

import pytest

from flipout.experiments.running.reader import Environment, Mismatch, Settings, convert, load, load_lines

RESULTS = Path(__file__).parents[3] / "results"
SETTINGS = {"experiment": "toy", "preset": "smoke", "seed": 0}
SESSION = {"started": "2026-11-15T10:00:00+00:00", "seconds": 9}


@pytest.mark.parametrize("folder", sorted(RESULTS.iterdir()), ids=lambda path: path.name)
def test_the_files_of_committed_runs_are_read(folder):
    assert convert(load(folder / "config.json"), Settings).experiment == folder.name
    assert Environment.of(load(folder / "environment.json")).sessions
    assert all({"piece", "step"} <= line.keys() for line in load_lines(folder / "metrics.jsonl"))


def test_settings_of_the_experiment_itself_are_left_alone():
    assert convert({**SETTINGS, "hidden": [32], "shown": ["fc1"]}, Settings) == Settings("toy", "smoke", 0, ("fc1",))


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
        assert convert(content, Settings).preset == "x" * 5000
        return
    with pytest.raises(Mismatch, match=f"^{says}"):
        convert(content, Settings)


def test_a_session_that_names_no_commit_has_that_of_the_environment():
    sessions = [SESSION, {**SESSION, "commit": None}, {**SESSION, "commit": "abc"}]
    found = Environment.of({"device": "cpu", "commit": "def", "sessions": sessions, "torch": "2.13"})
    assert [session.commit for session in found.sessions] == ["def", None, "abc"]


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1e999}', "[" * 100_000, "", '{"a": 1} x', '{"a": "\\ud800"}'])
def test_what_is_not_strict_json_is_refused(tmp_path, text):
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(Mismatch):
        load(tmp_path / "file.json")


def test_a_broken_line_is_named_by_its_number(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for second in ('{"piece": "netw', "3", "[]"):
        path.write_text(json.dumps({"piece": "network", "step": 1}) + "\n" + second + "\n")
        with pytest.raises(Mismatch, match=r"^line 2: "):
            load_lines(path)
