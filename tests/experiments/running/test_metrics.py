"""Metrics: of a damaged file only an incomplete last line is dropped. Everything else is named and left."""

import json
from pathlib import Path

import pytest

from flipout._typed import Mismatch
from flipout.errors import RunError
from flipout.experiments.running.files import RunFiles
from flipout.experiments.running.metrics import METRICS, Metrics
from tests.experiments.running.toys import run
from tests.experiments.toy_experiment import ToyConfig, content


def test_lines_come_back_as_they_were_logged(tmp_path: Path) -> None:
    metrics = Metrics(RunFiles(tmp_path))
    for step in range(3):
        metrics.add("a", step, {"loss": float("inf") if step == 2 else step / 2})
    metrics.add("b", 0, {"loss": 1.0})
    metrics.seal("a")
    again = Metrics(RunFiles(tmp_path))
    assert [(line["piece"], line["step"], line["loss"]) for line in again.read()] == [
        ("a", 0, 0.0),
        ("a", 1, 0.5),
        ("a", 2, None),
        ("b", 0, 1.0),
    ]
    assert [line["piece"] for line in again.keep(["a"], lambda piece: piece == "a")] == ["a"] * 3
    assert len(again.read()) == 3


@pytest.mark.parametrize("torn", ['{"piece": "network", "st', '{"piece"', "{", "nul"])
def test_an_incomplete_last_line_is_dropped(tmp_path: Path, torn: str) -> None:
    run(tmp_path)
    before = content(tmp_path)
    with (tmp_path / METRICS).open("a") as file:
        file.write(torn)
    run(tmp_path, resume=True)
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"piece": "netw', "line 2: "),
        ("3", "line 2: the file: 3 found; expected `object`, got `int`"),
        ('{"step": 1}', "line 2: 'piece': nothing found; expected a text"),
        ('{"piece": "network", "step": "1"}', "line 2: 'step': '1' found; expected a whole number"),
        ('{"piece": "network", "step": 1, "loss": "low"}', "line 2: 'loss': 'low' found; expected a whole number or"),
        ('{"piece": "network", "step": 1, "loss": 0.5}', "the lines of 'network': .* bytes with SHA-256"),
        ('{"piece": "' + "x" * 500 + '", "step": 1}', None),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_thrown_away(tmp_path: Path, line: str, says: str | None) -> None:
    """One bad line of 78 once took the 77 behind it along."""
    run(tmp_path, ToyConfig(size=5))
    path = tmp_path / METRICS
    first, _, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first, line, *rest]) + "\n")
    before = path.read_bytes()
    if says is None:  # of a piece that is not finished: forgotten; but now a line of the network is missing
        says = "the lines of 'network': "
    with pytest.raises(RunError, match=rf"metrics\.jsonl is broken \({says}.*restore it from a copy"):
        run(tmp_path, ToyConfig(size=5), resume=True)
    assert path.read_bytes() == before


def test_lines_of_early_versions_are_read_unchecked(tmp_path: Path) -> None:
    line = json.dumps({"piece": "a", "step": 0, "loss": 0.5})
    (tmp_path / METRICS).write_text(line + "\n")
    files = RunFiles(tmp_path)
    assert Metrics(files).read() == [json.loads(line)]
    assert files.unchecked == {"metrics.jsonl/a"}
    (tmp_path / METRICS).write_text(line + "\n[]\n" + line + "\n")
    with pytest.raises(Mismatch, match="line 2: "):
        Metrics(files).read()


def test_lines_that_were_logged_must_be_there(tmp_path: Path) -> None:
    run(tmp_path)
    path = tmp_path / METRICS
    lines = path.read_text().splitlines(keepends=True)
    for kept in (lines[:2], lines[:3]):
        path.write_text("".join(kept))
        with pytest.raises(RunError, match=r"no lines of 'measure\.[01]' found; expected those that were logged"):
            run(tmp_path, resume=True)
        assert path.read_text() == "".join(kept)
