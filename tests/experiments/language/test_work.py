"""A table of language models is extended, killed, taken up again and refused where it does not fit."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flipout.errors import InvalidArgument, RunError
from flipout.experiments.cli import main
from flipout.experiments.running.results import Result
from tests.experiments.language.toys import WORD, config
from tests.experiments.running.test_runs import ended, reach, started

SMOKE = ("run", "ptb-word", "--preset", "smoke", "--device", "cpu", "--most", "700", "--out")


def pieces(folder: Path) -> dict[str, Any]:
    """Return what was found, without the seconds."""
    found = {path.stem: json.loads(path.read_text()) for path in (folder / "pieces").glob("*.json")}
    for piece in found.values():
        for epoch in piece["history"]:
            del epoch["training"], epoch["seconds"], epoch["beside"]
    return found


def test_a_run_is_extended_by_rows_and_seeds_and_side_by_side_is_as_alone(tmp_path):
    rows = ("wd", "wd-flipout")
    whole = WORD.run(config(rows=rows, seeds=(0, 1), side_by_side=3), tmp_path / "whole", preset="smoke")
    for wanted, seeds in ((("wd",), (0,)), (("wd-flipout",), (0, 1)), (("wd",), (1,))):
        part = WORD.run(config(rows=wanted, seeds=seeds), tmp_path / "parts", preset="smoke", resume=True)
    assert pieces(tmp_path / "parts") == pieces(tmp_path / "whole")
    assert pieces(tmp_path / "parts").keys() == {"wd.0", "wd.1", "wd-flipout.0", "wd-flipout.1"}
    assert part.checks == whole.checks
    same = [name for name in whole.measured if "seconds" not in name]
    assert [part.measured[name] for name in same] == [whole.measured[name] for name in same]
    assert not list(tmp_path.rglob("*.unfinished*"))
    held = json.loads((tmp_path / "parts" / "config.json").read_text())
    assert (sorted(held["rows"]), held["seeds"]) == (["wd", "wd-flipout"], [0, 1])
    logged = [json.loads(line)["piece"] for line in (tmp_path / "parts" / "metrics.jsonl").read_text().splitlines()]
    assert logged == [name for name in ("wd.0", "wd-flipout.0", "wd-flipout.1", "wd.1") for _ in range(2)]
    other = config(training=replace(config().training, batch=10))
    with pytest.raises(RunError, match=r"training\.batch: 10 given, 20 there"):
        WORD.run(other, tmp_path / "parts", preset="smoke", resume=True)


def test_killed_and_interrupted_it_goes_on_to_the_same_end(tmp_path):
    more = ("--rows", "wd-flipout", "wd", "--training.schedule.epochs", "4", "--side-by-side", "2")
    whole, folder = tmp_path / "whole", tmp_path / "cut"
    assert main([*SMOKE, str(whole), *more]) == 0
    process = started(*SMOKE, str(folder), *more)
    reach(process, lambda: len(list(folder.glob("pieces/*.unfinished.safetensors"))) == 2)
    process.kill()
    assert ended(process)[0] == -signal.SIGKILL
    assert not (folder / "result.json").exists()
    assert main([*SMOKE, str(folder), *more, "--minutes", "0", "--resume"]) == 130  # after one more epoch
    assert main([*SMOKE, str(folder), *more, "--resume"]) == 0
    assert pieces(folder) == pieces(whole)
    assert not list(folder.rglob("*.unfinished*"))
    for name in ("wd.0.weights", "wd-flipout.0.weights"):
        assert (
            len({(run_folder / "pieces" / f"{name}.safetensors").read_bytes() for run_folder in (whole, folder)}) == 1
        )


def test_rows_and_seeds_that_are_not_there_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([*SMOKE, str(tmp_path / "run"), "--rows", "dropout"])
    assert "dropout" in capsys.readouterr().err
    for wrong in ({"rows": ()}, {"seeds": ()}, {"seeds": (-1,)}):
        with pytest.raises(InvalidArgument, match="expected at least one of each, seeds ≥ 0"):
            config(**wrong)
    for repeated in ({"rows": ("wd", "wd")}, {"seeds": (0, 1, 0)}):
        with pytest.raises(InvalidArgument, match="give each once"):
            config(**repeated)


def test_pieces_of_another_setting_are_refused(tmp_path):
    WORD.run(config(rows=("wd",)), tmp_path / "run", preset="smoke")
    WORD.run(replace(config(rows=("unregularised",)), most=900), tmp_path / "other", preset="smoke")
    (tmp_path / "run/pieces/unregularised.0.json").write_bytes(
        (tmp_path / "other/pieces/unregularised.0.json").read_bytes()
    )
    with pytest.raises(RunError, match=r"unregularised.0.json predicts 880 tokens an epoch, wd.0.json 680"):
        WORD.run(config(rows=("wd",)), tmp_path / "run", preset="smoke", resume=True)


def test_a_real_text_where_it_is(tmp_path, real_data):
    short = ("--text", "ptb_words", "--rows", "wd", "--training.schedule.epochs", "1")
    assert main([*SMOKE, str(tmp_path / "run"), *short]) == 0
    result = Result.read(tmp_path / "run" / "result.json")
    assert "10,000 kinds of tokens" in result.setting
    assert not [check for check in result.checks if check.quantity == "test perplexity"]  # 700 tokens are no bar
