"""Runs of one experiment side by side on the report page."""

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from flipout.experiments.report.page import write_page
from flipout.experiments.running.results import Check
from tests.experiments.report.pages import CHECKS, Parsed, finished


def compared(page: Path) -> tuple[Parsed, list[dict[str, Any]]]:
    parsed = Parsed(page)
    return parsed, [section for section in parsed.all("section") if section["class"] == "compared"]


def cells(parsed: Parsed, section: dict[str, Any]) -> list[list[list[str]]]:
    """Return the cells of each table, row by row."""
    return [
        [[cell["text"] for cell in parsed.all("th", "td", inside=row)] for row in parsed.all("tr", inside=table)]
        for table in parsed.all("table", inside=section)
    ]


def test_settings_that_differ_numbers_and_checks_stand_side_by_side(tmp_path):
    bare = replace(CHECKS[0], value=0.9, interval=None, holds=True, remark="one seed, so no interval")
    folders = [
        finished(
            tmp_path / "first",
            settings={"data": "digits", "pretraining": {"accuracy": 0.8, "hidden": [16]}, "precision": None},
            measured={"slope": -0.5, "epochs": 3},
            paper={"slope": -1, "cost": "low"},
            checks=CHECKS[:2],
        ),
        finished(
            tmp_path / "second",
            settings={"data": "digits", "pretraining": {"accuracy": 0.9, "hidden": [16]}, "draws": 7},
            measured={"slope": -0.75, "error": 0.25},
            paper={"slope": -1, "error": "about 0.2"},
            preset="smoke",
            checks=(bare,),
        ),
    ]
    write_page(folders, tmp_path / "report.html")
    parsed, (section,) = compared(tmp_path / "report.html")
    assert parsed.all("h2", inside=section)[0]["text"] == "Compared: variance-fc"
    runs = ["first, quick", "second, smoke"]
    settings, numbers, checks = cells(parsed, section)
    assert settings == [
        ["setting", *runs],
        ["pretraining.accuracy", "0.8", "0.9"],
        ["precision", "none", "–"],
        ["draws", "–", "7"],
    ]
    assert numbers == [
        ["quantity", "paper", *runs],
        ["slope", "−1", "−0.5", "−0.75"],
        ["epochs", "–", "3", "–"],
        ["error", "about 0.2", "–", "0.25"],
        ["cost", "low", "–", "–"],
    ]
    assert checks == [
        ["claim", "kind", *runs],
        [CHECKS[1].claim, "must hold", "✓ holds0.0021−0.0113 to 0.0155", "–"],
        [CHECKS[0].claim, "reported", "✗ does not hold1.3101.220 to 1.400", "✓ holds0.9one seed, so no interval"],
    ]
    anchors = [article["id"] for article in parsed.all("article")]
    for table in parsed.all("table", inside=section):
        assert [link["href"][1:] for link in parsed.all("a", inside=table)] == anchors
    assert f"#{section['id']}" in [link["href"] for link in parsed.all("a", inside=parsed.all("nav")[0])]


def test_checks_are_matched_by_their_ids_and_a_run_that_words_a_claim_otherwise_says_so(tmp_path):
    claim = "the slope over N = 1 … 8192 is −1"
    checks = (
        Check("slope", claim, "reported", "slope", 0.9, None, True, remark="one seed"),
        Check("slope", "the slope over N = 1 … 256 is −1", "reported", "slope", 0.9, None, True),
        Check("slopes", claim, "reported", "slope", 0.8, None, True),
    )
    folders = [finished(tmp_path / name, "x", checks=(check,)) for name, check in zip("abc", checks, strict=True)]
    write_page(folders, tmp_path / "report.html")
    parsed, (section,) = compared(tmp_path / "report.html")
    assert cells(parsed, section)[-1][1:] == [
        [claim, "reported", "✓ holds0.9one seed", "✓ holds0.9the slope over N = 1 … 256 is −1", "–"],
        [claim, "reported", "–", "–", "✓ holds0.8"],
    ]


def test_commits_of_all_sessions_are_told_apart(tmp_path):
    folders = [finished(tmp_path / name, "x") for name in ("a", "b")]
    for folder, commits in zip(folders, (("abc", "def"), ("def", "def")), strict=True):
        path = folder / "environment.json"
        held = json.loads(path.read_text())
        for session, commit in zip(held["sessions"], commits, strict=True):
            session["commit"] = commit
        path.write_text(json.dumps({**held, "commit": "def"}))
    write_page(folders, tmp_path / "report.html")
    parsed, (section,) = compared(tmp_path / "report.html")
    assert cells(parsed, section)[0][1:] == [["environment.commit", "abc, def", "def"]]


def test_only_different_runs_of_one_experiment_are_compared(tmp_path):
    first, second, theorem = (
        finished(tmp_path / name, experiment) for name, experiment in (("a", "x"), ("b", "y"), ("c", "z"))
    )
    write_page([first, second, theorem, first], tmp_path / "report.html")
    assert compared(tmp_path / "report.html")[1] == []
    assert "Side by side" not in Parsed(tmp_path / "report.html").all("nav")[0]["text"]


def test_runs_that_differ_in_nothing_are_said_to(tmp_path):
    folders = [finished(tmp_path / where / "run", measured={}, paper={}, checks=()) for where in ("here", "there")]
    write_page(folders, tmp_path / "report.html")
    parsed, (section,) = compared(tmp_path / "report.html")
    assert "None: settings and environment are the same." in section["text"]
    assert not parsed.all("table", inside=section)


def test_folders_of_one_name_are_told_apart_by_where_they_are(several):
    parsed, (section,) = compared(several)
    head = cells(parsed, section)[0][0]
    assert head == ["setting", "results/variance-fc, quick", "runs/variance-fc, quick", "long, quick"]
    assert [row[0] for row in cells(parsed, section)[0][1:]] == ["seed", "draws", "pretraining.hidden"]
    summaries = [summary["text"] for summary in parsed.all("summary", inside=section)]
    assert summaries == ["γ 12 numbers", "slope of flipout 12 checks"]
