"""The committed result is what its pieces say, and the lab notes quote it."""

import re
from pathlib import Path
from statistics import fmean

import pytest
import torch

from flipout.experiments.running.progress import RunProgress
from flipout.experiments.running.results import Result
from flipout.experiments.running.runs import Run
from flipout.experiments.shift import claims
from flipout.experiments.shift import work as shift
from flipout.experiments.shift.corruptions import STRENGTHS

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results" / "shift"
ROWS = {"accuracy": "accuracy", "nll": "NLL", "ece": "calibration error", "rejection": "mean risk over all shares kept"}


@pytest.fixture(scope="module")
def found() -> claims.Found:
    return shift._found(Run(RESULTS, 0, torch.device("cpu"), RunProgress()))


@pytest.fixture(scope="module")
def notes() -> str:
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    return text[text.index("## Corrupted pictures") :].replace("−", "-").replace("*", "")


def test_the_committed_result_is_computed_from_its_pieces_again(found):
    committed = Result.read(RESULTS / "result.json")
    assert committed.measured == claims.measured_numbers(found)
    checks = {check.id: check for check in claims.evaluate(found)}
    assert {check.id: check.holds for check in committed.checks} == {name: c.holds for name, c in checks.items()}
    for check in committed.checks:
        assert checks[check.id].value == pytest.approx(check.value)
        assert checks[check.id].interval == (check.interval and pytest.approx(check.interval))


@pytest.mark.parametrize(("score", "row"), ROWS.items())
def test_the_notes_quote_the_scores(score, row, found, notes):
    clean = [found[method][claims.CLEAN][score] for method in claims.METHODS]
    corrupted = [fmean(claims.over_corruptions(found, m, score, s) for s in STRENGTHS) for m in claims.METHODS]
    paper = notes[notes.index("| paper, CIFAR-10") : notes.index("| quick")]
    for place, values in {"test set": clean, "corrupted": corrupted}.items():
        if (place, score) != ("test set", "rejection"):  # in the text
            assert f"| {place}: {row} | " + " | ".join(f"{value:.3f}" for value in values) + " |" in paper


@pytest.mark.parametrize(("score", "row"), [("nll", "NLL"), ("ece", "calibration error"), ("rejection", "mean risk")])
def test_the_notes_quote_the_differences_with_their_intervals(score, row, notes):
    checks = {check.id: check for check in Result.read(RESULTS / "result.json").checks}
    (line,) = re.findall(rf"^\| {row} \|.*\|$", notes, re.MULTILINE)
    for method, quoted in zip(("dropout", "flipout", "ensemble"), line.split("|")[2:-1], strict=True):
        check = checks[f"{score}/{method}"]
        assert check.value is not None
        assert check.interval is not None
        numbers = [float(number) for number in re.findall(r"-?\d\.\d+", quoted)]
        assert numbers == pytest.approx([check.value, *check.interval], abs=6e-4)
        assert (numbers[2] < 0) == check.holds
