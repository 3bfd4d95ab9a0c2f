"""The tables: runs that are extended by rows and seeds, runs that are killed, and what is claimed."""

import json
import math
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flipout.errors import InvalidArgument, RunError
from flipout.experiments.cli import main
from flipout.experiments.language import claims
from flipout.experiments.language.rows import CHARACTERS
from flipout.experiments.language.work import LanguageConfig, Table, Trained
from flipout.experiments.registry import EXPERIMENTS
from flipout.experiments.running.results import MUST_HOLD, REPORTED, Result
from tests.experiments.language.test_models import paper
from tests.experiments.running.test_runs import ended, reach, started

WORD = EXPERIMENTS["ptb-word"]
SMOKE = ("run", "ptb-word", "--preset", "smoke", "--device", "cpu", "--most", "700", "--out")


def found_of(name: str, config: LanguageConfig, trained: Sequence[Trained]) -> claims.Found:
    """Return what the table of an experiment finds in these models."""
    table = getattr(EXPERIMENTS[name].work, "__self__", None)
    assert isinstance(table, Table)
    return table.found(config, trained)


def pieces(folder: Path) -> dict[str, Any]:
    """Return what was found, without the seconds."""
    found = {path.stem: json.loads(path.read_text()) for path in (folder / "pieces").glob("*.json")}
    for piece in found.values():
        for epoch in piece["history"]:
            del epoch["training"], epoch["seconds"], epoch["beside"]
    return found


def config(**changes: Any) -> LanguageConfig:
    config = replace(WORD.config("smoke"), device="cpu", most=700, **changes)  # pyright: ignore[reportCallIssue]
    assert isinstance(config, LanguageConfig)
    return config


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
    for twice in ({"rows": ("wd", "wd")}, {"seeds": (0, 1, 0)}):
        with pytest.raises(InvalidArgument, match="give each once"):
            config(**twice)


def test_pieces_of_another_setting_are_refused(tmp_path):
    WORD.run(config(rows=("wd",)), tmp_path / "run", preset="smoke")
    WORD.run(replace(config(rows=("unregularised",)), most=900), tmp_path / "other", preset="smoke")
    (tmp_path / "run/pieces/unregularised.0.json").write_bytes(
        (tmp_path / "other/pieces/unregularised.0.json").read_bytes()
    )
    with pytest.raises(RunError, match=r"unregularised.0.json predicts 880 tokens an epoch, wd.0.json 680"):
        WORD.run(config(rows=("wd",)), tmp_path / "run", preset="smoke", resume=True)


def trained(
    row: str, seed: int, valid: float, test: float, train: tuple[float, ...] = (3.0,) * 100, ended: str = "epochs"
) -> Trained:
    history = [
        {"train": loss, "valid": valid, "rate": 1.0, "training": 1.0, "seconds": 2.0, "beside": 1} for loss in train
    ]
    drawn = {"shared": [1.0, 2.0, 3.0], "flipout": [1.5, 2.0, 2.5]} if "flipout" in row else {}
    return Trained(row, seed, 19_780_400, 929_560, history, ended, valid, test, test + 0.1, 1e-6, drawn)


def test_other_readings_of_a_row_have_its_bar_and_no_place_in_the_order():
    values = {"wd-flipout": 73.0, "gal": 76.0, "semeniuta": 82.0, "semeniuta-steps": 70.0, "semeniuta-ends": 81.0}
    checks, *_ = found_of(
        "ptb-word", paper("ptb-word"), [trained(name, 0, 4.4, math.log(v)) for name, v in values.items()]
    )
    bars = {check.id: check.holds for check in checks if check.quantity.startswith("test ")}
    assert bars == {
        "test-wd-flipout": True,
        "test-gal": True,
        "test-semeniuta": False,
        "test-semeniuta-steps": True,
        "test-semeniuta-ends": False,
    }
    (order,) = (check for check in checks if check.id == "ranking")
    assert order.claim.startswith("The 3 rows")
    assert order.holds


def test_bars_of_characters_and_the_numbers_of_the_paper():
    bits = math.log(2)
    values = {"flipout": 1.25, "shared": 1.251, "gal": 1.3}
    models = [trained(name, 0, bits, value * bits, ended="early stopping") for name, value in values.items()]
    checks, ours, theirs = found_of("ptb-char", paper("ptb-char"), models)
    assert {check.kind for check in checks} == {MUST_HOLD, REPORTED}
    bars = {check.id: check.holds for check in checks if check.quantity.startswith("test ")}
    assert bars == {"test-flipout": True, "test-shared": True, "test-gal": False}
    (order,) = (check for check in checks if check.id == "ranking")
    assert order.holds
    assert ours["Mult. Gauss + flipout: test BPC"] == pytest.approx(1.25)
    assert theirs["Mult. Gauss + flipout: test BPC"] == 1.227
    assert theirs["RBN (2017), as the paper quotes it: test BPC"] == 1.32
    assert theirs["H-LSTM + LN (2016), as the paper quotes it: validation BPC"] == 1.281
    assert theirs.keys() <= ours.keys()
    cut, *_ = found_of("ptb-char", paper("ptb-char"), [trained("flipout", 0, bits, 1.25 * bits)])
    (short,) = (check for check in cut if check.id == "test-flipout")
    assert short.remark == "cut short by its limit of epochs, so it does not count"
    assert not short.holds


def test_epochs_of_rows_and_of_their_readings():
    config = paper("ptb-char")
    planned = {row.name: config.training_of(row).schedule.epochs for row in CHARACTERS}
    assert planned["flipout"] == planned["shared"] == 300
    assert {name for name, epochs in planned.items() if epochs == 15} == {"semeniuta-short", "unregularised-short"}
    assert set(planned.values()) == {15, 60, 300}
    bits = math.log(2)
    models = [trained("semeniuta-short", 0, bits, 1.33 * bits, (1.0,) * epochs) for epochs in (15, 14)]
    bars = [
        next(check for check in found_of("ptb-char", config, [row])[0] if check.quantity == "test BPC")
        for row in models
    ]
    assert [bar.holds for bar in bars] == [True, False]  # the second was cut short


def test_flipout_against_wd_has_an_interval_over_seeds():
    models = [
        trained(name, seed, math.log(value + seed), math.log(value - 4 + seed))
        for name, value in (("wd-flipout", 78.0), ("wd", 80.0), ("wd-flipout-tied", 74.5), ("wd-tied", 74.0))
        for seed in range(3)
    ]
    checks, ours, theirs = found_of("ptb-word", paper("ptb-word"), models)
    untied, tied = (check for check in checks if check.id.startswith("test-below-"))
    assert (untied.value, untied.holds, tied.holds) == (pytest.approx(-2.0), True, False)
    assert untied.interval == pytest.approx((-2.0, -2.0))
    bars = {check.id: check.holds for check in checks}
    assert (bars["test-wd-flipout"], bars["test-wd-flipout-tied"]) == (True, False)
    assert ours["WD + flipout: test perplexity"] == "75 ± 0.58 (3 seeds)"
    assert (theirs["WD + flipout: test perplexity"], theirs["WD (2017), tied: test perplexity"]) == (73.2, "–")
    assert "tokens/s" in str(ours["WD + flipout: seconds an epoch, tokens a second"])
    undecided, *_ = claims.over_seeds(
        "x", "x is below y", "difference", [-1.0, 1.0], lambda value, low, high: high < 0, "table"
    )
    assert undecided.remark == "these seeds cannot tell it from 0"


def test_curves_of_large_batches_are_compared_by_epochs():
    models = [trained("wd-flipout", 0, 4.0, 4.0, (6.0, 5.0, 4.0)), trained("wd", 0, 4.0, 4.0, (6.0, 5.5, 5.0))]
    checks, ours, theirs = found_of("ptb-large-batch", paper("ptb-large-batch"), models)
    lower, fewer = (check for check in checks if check.kind == REPORTED)
    assert (lower.value, lower.holds) == (-1.0, True)
    assert (fewer.value, fewer.interval, fewer.holds) == (1.5, None, True)
    assert fewer.remark == "one seed, so no interval"
    assert ours["WD + flipout: training perplexity at the end"] == pytest.approx(math.exp(4))
    assert theirs["WD + flipout: training perplexity at the end"] == theirs["WD: test perplexity"] == "–"


@pytest.mark.parametrize("name", ["ptb-char", "ptb-word", "ptb-large-batch"])
def test_the_paper_presets_are_the_papers_setting(name):
    config = paper(name)
    training, schedule = config.training, config.training.schedule
    found = (training.optimizer, schedule.rate, training.clip, training.batch, training.precision)
    assert (
        found
        == {
            "ptb-char": ("amsgrad", 0.004, 0.01, 32, "bf16"),
            "ptb-word": ("sgd", 30.0, 0.25, 40, "bf16"),
            "ptb-large-batch": ("adam", 0.001, 0.25, 8192, "bf16"),
        }[name]
    )
    assert config.most == 0
    assert config.text == ("ptb_characters" if name == "ptb-char" else "ptb_words")
    assert config.rows[0].endswith("flipout")
    if name == "ptb-word":
        assert (schedule.epochs, schedule.factor, schedule.patience, training.window) == (100, 4.0, 5, 35)


def test_a_real_text_where_it_is(tmp_path, real_data):
    short = ("--text", "ptb_words", "--rows", "wd", "--training.schedule.epochs", "1")
    assert main([*SMOKE, str(tmp_path / "run"), *short]) == 0
    result = Result.read(tmp_path / "run" / "result.json")
    assert "10,000 kinds of tokens" in result.setting
    assert not [check for check in result.checks if check.quantity == "test perplexity"]  # 700 tokens are no bar
