"""What a run prints at its end, at the widths of terminals."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from flipout.experiments.running.results import Result
from flipout.experiments.terminal import report_command, show

RESULTS = Path(__file__).parents[2] / "results"


def printed(capsys, name: str = "variance-fc", preset: str = "paper", folder: str = "runs/a") -> str:
    result = Result.read(RESULTS / name / "result.json")
    show(replace(result, preset=preset), Path(folder))
    return capsys.readouterr().out


def test_numbers_stand_beside_the_papers(capsys):
    assert "unregularised LSTM: test perplexity 129.14 128.97" in " ".join(printed(capsys, "ptb-word").split())


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", ["variance-fc", "ptb-word", "uncertainty"])
def test_lines_are_wrapped_at_words(capsys, monkeypatch, columns, name):
    monkeypatch.setenv("COLUMNS", str(columns))
    out = printed(capsys, name)
    result = Result.read(RESULTS / name / "result.json")
    assert max(map(len, out.splitlines())) <= columns
    shown = set(out.split())
    for text in (result.setting, result.title, *(check.statement for check in result.checks)):
        assert {word for word in text.split() if len(word) < 25} <= shown


def test_the_last_line_is_the_command_for_the_page(capsys):
    assert printed(capsys).splitlines()[-2:] == [
        "See it as a page:",
        "  flipout report runs/a --out runs/a/report.html",
    ]
    assert report_command(Path("my runs/$1")) == "flipout report 'my runs/$1' --out 'my runs/$1/report.html'"
    show(Result.read(RESULTS / "variance-fc" / "result.json"), Path("runs/a"), has_page=True)
    assert "flipout report" not in capsys.readouterr().out
    deep = "/".join(["a-folder"] * 20)
    assert f"The run is in {deep}\n" in printed(capsys, folder=deep)  # in one piece, to be copied


@pytest.mark.parametrize("preset", ["smoke", "demo"])
def test_a_small_run_does_not_judge_the_paper(capsys, preset):
    assert "✗" in printed(capsys, "variance-fc")
    out = printed(capsys, "variance-fc", preset)
    assert "✗" not in out
    assert "too small to judge" in " ".join(out.split())
