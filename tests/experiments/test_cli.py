"""flipout list | run | report: options, refusals and exit statuses, without a traceback."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from flipout.experiments import cli
from flipout.experiments.cli import main
from flipout.experiments.running.runs import Run
from tests.experiments.toy_experiment import TOY, content

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path) -> Path:
    """An empty folder to work in, and a registry with the toy."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setitem(cli.EXPERIMENTS, "toy", TOY)
    monkeypatch.setenv("FLIPOUT_COMMIT", "none")
    monkeypatch.setenv("COLUMNS", "100")
    return folder


def said(command: str, status: int, capsys) -> str:
    """Return what the command printed: on stdout if it went well, else on stderr."""
    try:
        ended = main(shlex.split(command))
    except SystemExit as asked:  # the way of the parser of options
        ended = asked.code
    out, err = capsys.readouterr()
    assert ended == status, err
    assert "Traceback" not in out + err
    assert status == 0 or err
    return out if status == 0 else err


def config(folder: str = "runs/toy-smoke") -> dict:
    return json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))


def test_help(capsys):
    for words in ("", "-h", "--help", "run --help"):
        assert said(words, 0, capsys).startswith("usage: flipout COMMAND")
    assert "--out" in said("report --help", 0, capsys)


def test_list_names_every_experiment_and_its_costs(capsys):
    out = said("list", 0, capsys)
    for experiment in cli.EXPERIMENTS.values():
        if experiment is not TOY:
            assert f"{experiment.name}\n    {experiment.title}\n" in out
            for preset, cost in experiment.costs.items():
                assert f"{preset}: {cost}" in " ".join(out.split())


def test_help_of_a_run_shows_the_defaults_of_its_preset(capsys):
    experiment = cli.EXPERIMENTS["variance-fc"]
    for preset, other in (("smoke", "paper"), ("paper", "smoke")):
        draws = asdict(experiment.config(preset))["draws"]
        for words in (f"--preset {preset}", f"--preset={preset}", f"--preset {other} --preset {preset}"):
            out = " ".join(said(f"run variance-fc {words} --help", 0, capsys).replace("│", " ").split())
            assert f"--draws INT (default: {draws})" in out
            assert f"(default: {preset})" in out
    assert "(default: quick)" in said("run variance-fc --help", 0, capsys)


@pytest.mark.parametrize("preset", ["smoke", "quick", "paper"])
def test_a_part_of_an_experiment_that_a_preset_leaves_out_is_no_command(capsys, preset):
    out = said(f"run theorem --preset {preset} --help", 0, capsys)
    there = asdict(cli.EXPERIMENTS["theorem"].config(preset))["convgg"] is not None
    assert ("--convgg.draws" in out) == there
    assert "subcommands" not in out


def test_a_run_has_a_folder_of_its_own_name_and_says_what_it_found(capsys, here):
    out = said("run toy --preset smoke", 0, capsys)
    assert "✓  the network is 2 × 3" in out
    assert "–  nothing is endless [a]" in out
    assert "too small to judge" in out
    assert "The run is in runs/toy-smoke" in out
    assert [path.name for path in here.iterdir()] == ["runs"]
    deep = "/".join(["a-folder"] * 20)
    assert f"The run is in {deep}\n" in said(f"run toy --out {deep}", 0, capsys)  # in one piece, to be copied
    said("run toy", 0, capsys)
    assert config("runs/toy-quick")["size"] == 3


def test_options_go_before_the_preset(capsys):
    said("run toy --preset smoke --size 1 --inner.accuracy 0.5 --seed 7 --device cpu", 0, capsys)
    assert config() == {
        "experiment": "toy",
        "preset": "smoke",
        "seed": 7,
        "device": "cpu",
        "size": 1,
        "broken": False,
        "inner": {"accuracy": 0.5},
    }


def test_options_of_a_real_experiment(capsys):
    quick = "--batch-sizes 1 8 --schemes shared flipout --pairs 4 --examples 40 --pair-batch 8"
    said(f"run variance-fc --preset smoke --draws 7 --pretraining.accuracy 0.5 {quick} --out r", 0, capsys)
    held = config("r")
    assert (held["draws"], held["pretraining"]["accuracy"], held["batch_sizes"]) == (7, 0.5, [1, 8])
    assert {row["draws"] for row in json.loads(Path("r/measurements.json").read_text())} == {7}


def test_the_seed_decides(capsys):
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        said(f"run toy --preset smoke --seed {seed} --out {folder}", 0, capsys)
    a, b, c = (content(Path(folder)) for folder in "abc")
    assert a == b
    assert all(a[file] != c[file] for file in ("result.json", "metrics.jsonl", "pieces/network.safetensors"))


def test_a_broken_claim_of_theory_is_status_1(capsys):
    assert main(["run", "toy", "--preset", "smoke", "--broken"]) == 1
    assert "must hold but does not: the network is 2 × 3" in capsys.readouterr().out
    assert main(["run", "toy", "--preset", "smoke", "--broken", "--resume"]) == 1
    said("report runs/toy-smoke", 0, capsys)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("walk", "there is no command 'walk'"),
        ("list all", "flipout list: takes no arguments; 'all' given"),
        ("doctor all", "flipout doctor: takes no arguments; 'all' given"),
        ("run", "flipout run: no experiment given; there are variance-fc"),
        ("run tyo", "flipout run: there is no experiment 'tyo'; there are variance-fc"),
        ("run --preset smoke toy", "there is no experiment '--preset'"),
        ("run toy --preset huge", "toy has no preset 'huge': use one of smoke, quick, paper"),
        ("run toy --preset", "--preset"),
        ("run toy --size many", "invalid literal for int"),
        ("run toy --size", "Missing value for argument '--size'"),
        ("run toy --colour red", "Unrecognized options: --colour"),
        ("run toy --device banana", "--device banana: there are auto, cpu"),
        ("run toy --out a-file", "a-file is a file: choose a folder with --out"),
        ("run toy --out a-file/run", "a-file/run cannot be created"),
        ("run toy --out foreign", "foreign holds thesis.tex and no run"),
        ("run toy --out foreign --resume", "foreign holds thesis.tex and no run"),
        ("run toy --out other --resume", "other/config.json is not the config of a run"),
        ("run toy --out broken --resume", "broken/config.json is not the config of a run"),
        ("run variance-fc --schemes foo", "invalid choice 'foo'"),
        ("run variance-fc --schemes flipout", "the claims compare shared and flipout"),
        ("run variance-fc --schemes", "expected at least one of each"),
        ("run variance-fc --batch-sizes 2 4", "begin at a batch of 1"),
        ("run variance-fc --repeats 1", "repeats=1: expected at least 2"),
        ("run variance-fc --pretraining.every 0", "pretraining.every=0: expected at least 1"),
        ("run variance-fc --pretraining.network foo", "invalid choice 'foo'"),
        ("report", "expected the folder of at least one finished run"),
        ("report nowhere", "nowhere does not exist"),
        ("report a-file", "a-file is a file, and a run is a folder"),
        ("report foreign", "foreign is not a run"),
        ("report --colour red", "Unrecognized options: --colour"),
    ],
)
def test_refusals_name_what_is_wrong_and_touch_nothing(capsys, here, command, says):
    for name, text in (("foreign/thesis.tex", ""), ("other/config.json", "[1]"), ("broken/config.json", "{")):
        Path(name).parent.mkdir()
        Path(name).write_text(text)
    Path("a-file").touch()
    before = sorted(here.rglob("*"))
    assert says in " ".join(said(command, 2, capsys).replace("│", " ").split())
    assert sorted(here.rglob("*")) == before


def test_a_run_is_not_written_over_nor_mixed_with_other_settings(capsys, monkeypatch):
    folder = Path("runs/toy-smoke")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "draw", interrupt)
        said("run toy --preset smoke", 130, capsys)
    before = content(folder)
    assert "already holds a run (unfinished). Continue it with --resume" in said("run toy --preset smoke", 2, capsys)
    assert "runs/toy-smoke is unfinished" in said("report runs/toy-smoke", 2, capsys)
    said("run toy --preset smoke --out runs/other", 0, capsys)
    assert main(["report", "runs/toy-smoke", "runs/other"]) == 0
    left_out = "runs/toy-smoke is unfinished, and left out: finish it with --resume.\n"
    assert capsys.readouterr() == ("The report is in report.html\n", left_out)
    assert "runs/none does not exist" in said("report runs/none runs/other", 2, capsys)
    for option, named in (
        ("--seed 3", "(seed: 3 given, 0 there)"),
        ("--inner.accuracy 0.5 --size 3", "(size: 3 given, 2 there, inner.accuracy: 0.5 given, 0.85 there)"),
        ("--preset quick --size 2", "(preset: 'quick' given, 'smoke' there)"),
    ):
        err = said(f"run toy --preset smoke --out {folder} --resume {option}", 2, capsys)
        assert f"the run in {folder} was started with other settings {named}" in err
    err = said(f"run variance-fc --preset smoke --out {folder} --resume", 2, capsys)
    assert "experiment: 'variance-fc' given, 'toy' there" in err
    assert content(folder) == before
    said("run toy --preset smoke --resume", 0, capsys)
    assert "already holds a run (finished)" in said("run toy --preset smoke", 2, capsys)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_says_how_to_go_on(capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Run, "draw", interrupt)
        err = said("run toy --preset smoke --resume --out 'my runs/$1'", 130, capsys)
    *_, promise, command = err.splitlines()
    assert promise == "Stopped. What was finished is in my runs/$1; continue with:"
    assert command == "  flipout run toy --preset smoke --out 'my runs/$1' --resume"
    said(command.removeprefix("  flipout "), 0, capsys)
    said("run toy --preset smoke", 0, capsys)
    assert content(Path("my runs/$1")) == content(Path("runs/toy-smoke"))


def test_ctrl_c_outside_of_a_run_is_quiet(capsys, monkeypatch):
    monkeypatch.setattr(cli, "write_page", interrupt)
    assert main(["report", "anything"]) == 130
    assert capsys.readouterr().err == ""


def test_what_the_machine_refuses_is_said_in_a_line(capsys, monkeypatch):
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device", "report.html")

    monkeypatch.setattr(cli, "write_page", full)
    assert main(["report", "anything"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("flipout report: report.html cannot be read or written (No space left on device). Fix that")
    assert "Traceback" not in said


def test_the_command_itself(here):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "flipout.experiments", "report"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (ended.returncode, ended.stdout) == (2, "")
    first, refusal = ended.stderr.splitlines()
    assert first == "flipout report: loading PyTorch"
    assert refusal.startswith("flipout report: expected the folder of at least one")


def test_a_reader_may_leave() -> None:
    command = f"{sys.executable} -m flipout.experiments run variance-fc --help | head -1"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.startswith("usage")
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
