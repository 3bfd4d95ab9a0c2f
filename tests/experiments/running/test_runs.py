"""A run can be stopped at any moment and resumed. Its result is that of an uninterrupted run."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flipout.errors import MissingExtra
from flipout.experiments.cli import main
from flipout.experiments.running.runs import Run
from tests.experiments.running.toys import run, sessions
from tests.experiments.toy_experiment import DEAD, content

ROOT = Path(__file__).parents[3]


# A shell may start what runs in its background deaf to Ctrl-C.
SHELL = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('flipout.experiments', run_name='__main__')"
)


def started(*words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SHELL, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit status of a process, and its stderr."""
    _, said = process.communicate(timeout=300)
    return process.returncode, said


def reach(process: subprocess.Popen[str], moment: Callable[[], bool]) -> None:
    while not moment():
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)


@pytest.fixture
def stopped(monkeypatch) -> Callable[[int], None]:
    """Press Ctrl-C when a run logs for the nth time from now on; 0: never."""
    log, count = Run.log, [0]

    def counted(self: Run, step: int, **metrics: float) -> None:
        count[0] -= 1
        if count[0] == 0:
            time.sleep(0.1)
            raise KeyboardInterrupt
        log(self, step, **metrics)

    monkeypatch.setattr(Run, "log", counted)
    return lambda after: count.__setitem__(0, after)


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> dict[str, list[dict[str, Any]]]:
    """What became of runs that died at every change of a file: before it, and in the midst of it."""
    folders = {name: str(tmp_path_factory.mktemp(name)) for name in ("before", "amid")}
    code = f"from tests.experiments.toy_experiment import sweeps; sweeps({folders})"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FLIPOUT_COMMIT": "none"}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that can fork")
@pytest.mark.parametrize("death", ["before", "amid"])
def test_killed_at_every_change_of_a_file(swept, death):
    told = swept[death]
    assert len(told) > 35
    assert {trial["pieces"] for trial in told} == {0, 1, 2, 3}  # the deaths lie before, between and after the pieces
    for trial in told:
        assert trial["statuses"] == [DEAD] * (len(trial["statuses"]) - 1) + [0]
        assert 1 <= trial["sessions"] <= len(trial["statuses"])
        assert trial["differs"] == []


@pytest.fixture
def one_thread(monkeypatch) -> Iterator[None]:
    """Compute in this process as the started ones do."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_a_real_run_killed_watched_interrupted_and_finished(tmp_path, capsys):
    whole, folder = tmp_path / "whole", tmp_path / "my run"
    first = ("run", "variance-fc", "--preset", "smoke", "--out")
    again = (*first, str(folder), "--resume")
    assert main((*first, str(whole))) == 0

    moments = (
        lambda: (folder / "metrics.jsonl").exists() and (folder / "metrics.jsonl").stat().st_size > 0,
        lambda: len(list(folder.glob("pieces/variance.*.json"))) > 1,
    )
    for moment in moments:
        process = started(*again)
        reach(process, moment)
        process.kill()
        assert ended(process)[0] == -signal.SIGKILL
        assert not (folder / "result.json").exists()

    process = started(*again)
    reach(process, lambda: len(sessions(folder)) == 3)
    process.send_signal(signal.SIGSTOP)  # it waits for what follows, however slow this machine is
    assert main(again) == 2
    assert f"Another process is working on the run in {folder}" in capsys.readouterr().err
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    status, said = ended(process)
    assert status == 130
    assert "Traceback" not in said
    *_, promise, command = said.splitlines()
    assert promise == f"Stopped. What was finished is in {folder}; continue with:"
    assert shlex.split(command) == ["flipout", *again]

    assert main(shlex.split(command)[1:]) == 0
    assert content(folder) == content(whole)
    assert len(sessions(folder)) == 4
    assert sum(session["seconds"] for session in sessions(folder)) > 0


def test_a_finished_run_taken_up_again_stays_as_it_is(tmp_path):
    result = run(tmp_path)
    before = content(tmp_path)
    assert run(tmp_path, resume=True) == result
    assert content(tmp_path) == before
    assert len(sessions(tmp_path)) == 2


def test_sessions_add_up(tmp_path, stopped):
    for after in (3, 1):
        stopped(after)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, resume=True)
    stopped(0)
    run(tmp_path, resume=True)
    held = sessions(tmp_path)
    assert len(held) == 3
    assert min(session["seconds"] for session in held[:2]) >= 0.1
    assert [session["started"] for session in held] == sorted(session["started"] for session in held)


def test_metrics_of_unfinished_pieces_and_a_torn_line_are_forgotten(tmp_path, stopped):
    run(tmp_path / "whole")
    stopped(4)  # two lines of the network, one of measure/0, none of measure/1
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut")
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"piece": "measure/1", "step": 1, "mean": 7.0}\n{"piece": "measu')
    stopped(0)
    run(tmp_path / "cut", resume=True)
    assert content(tmp_path / "cut") == content(tmp_path / "whole")
    lines = [json.loads(line) for line in (tmp_path / "cut" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["piece"], line["step"]) for line in lines] == [
        ("network", 0),
        ("network", 1),
        ("measure/0", 0),
        ("measure/1", 1),
    ]
    assert lines[-1]["endless"] is None


@pytest.mark.parametrize("resume", [False, True])
def test_a_process_killed_before_it_had_begun_is_no_run(tmp_path, resume):
    (tmp_path / ".lock").touch()
    (tmp_path / ".config.json.0123456789abcdef.new").write_text('{"exper')
    run(tmp_path, resume=resume)
    assert (tmp_path / "result.json").exists()
    assert not list(tmp_path.rglob("*.new*"))


def test_files_are_utf8_whatever_the_locale(tmp_path):
    run(tmp_path / "here")
    locale = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ["run", "toy", "--preset", "smoke", "--out", str(tmp_path / "there")]
    code = (
        "from tests.experiments.toy_experiment import TOY, cli; cli.EXPERIMENTS['toy'] = TOY; "
        f"exit(cli.main({words}) or cli.main([*{words}, '--resume']))"
    )
    command = [sys.executable, "-c", code]
    there = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **locale})
    assert there.returncode == 0, there.stderr
    assert content(tmp_path / "there") == content(tmp_path / "here")
    assert "α ≫ β" in (tmp_path / "there" / "result.json").read_text(encoding="utf-8")


def scalars(folder: Path) -> list[tuple[str, int, float]]:
    """Return what TensorBoard reads in a folder."""
    reader = "tensorboard.backend.event_processing.event_accumulator"
    accumulator = pytest.importorskip(reader, reason="needs tensorboard: pip install tensorboard")
    events = accumulator.EventAccumulator(str(folder / "tensorboard")).Reload()
    return sorted((tag, event.step, event.value) for tag in events.Tags()["scalars"] for event in events.Scalars(tag))


def logged(folder: Path) -> list[tuple[str, int, float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return sorted(
        (f"{line['piece']}/{key}", line["step"], float(np.float32(value)))
        for line in lines
        for key, value in line.items()
        if key not in ("piece", "step") and value is not None
    )


@pytest.mark.parametrize("cuts", [(), (1,), (2, 1), (4,)])
def test_tensorboard_sees_the_metrics_also_of_a_run_taken_up_again(tmp_path, stopped, cuts):
    pytest.importorskip("tensorboard", reason="needs tensorboard: pip install tensorboard")
    for after in cuts:
        stopped(after)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, resume=True, tensorboard=True)
    stopped(0)
    run(tmp_path, resume=True, tensorboard=True)
    assert len(logged(tmp_path)) == 4
    assert scalars(tmp_path) == logged(tmp_path)


def test_tensorboard_can_be_asked_for_afterwards(tmp_path):
    pytest.importorskip("tensorboard", reason="needs tensorboard: pip install tensorboard")
    run(tmp_path)
    run(tmp_path, resume=True, tensorboard=True)
    assert scalars(tmp_path) == logged(tmp_path)


def test_without_tensorboard_nothing_is_begun(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtra, match=r"--tensorboard needs the package tensorboard: pip install 'flipout\[tens"):
        run(tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()
