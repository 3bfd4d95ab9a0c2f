"""The command with hostile names, streams and disks: a line says what is wrong, and nothing else happens."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flipout.errors import DataError
from flipout.experiments import cli, doctor
from flipout.experiments.data import files
from flipout.experiments.registry import EXPERIMENTS
from tests.experiments.report.pages import finished
from tests.experiments.toy_experiment import TOY

ROOT = Path(__file__).parents[2]
START = "import sys; sys.argv = ['flipout', *sys.argv[1:]]; from flipout_command import run; sys.exit(run())"


def in_a_shell(words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command by a line of the shell, such as "list >&-"."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PY": sys.executable}
    line = f'"$PY" -c "$CODE" {words}'
    return subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, env={**environment, "CODE": f"{before}\n{START}"}
    )


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
@pytest.mark.parametrize("words", ["list", "--help", pytest.param("doctor", marks=pytest.mark.slow)])
def test_output_that_cannot_be_written_is_a_line(words: str) -> None:
    ran = in_a_shell(f"{words} >/dev/full")
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1] == "flipout: the output cannot be written (No space left on device)."
    assert "Traceback" not in ran.stderr


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-", "<&-"])
@pytest.mark.parametrize("words", ["run none", pytest.param("doctor", marks=pytest.mark.slow)])
def test_advice_that_cannot_be_written_stops_nothing(words: str, redirected: str) -> None:
    expected = in_a_shell(words)
    ran = in_a_shell(f"{words} {redirected}")
    assert (ran.returncode, ran.stdout) == (expected.returncode, expected.stdout)


def test_without_any_stream_the_command_ends_as_ever() -> None:
    assert in_a_shell("list >&- 2>&- <&-").returncode == 0
    assert in_a_shell("list | head -c 1").stderr == ""


def test_a_late_ctrl_c_prints_no_traceback_of_the_way_out() -> None:
    before = (
        "import atexit, os, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))"
    )
    handler = signal.getsignal(signal.SIGINT)
    ran = in_a_shell("list", before)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert signal.getsignal(signal.SIGINT) is handler  # of this process


def test_a_folder_whose_name_is_no_unicode(tmp_path: Path) -> None:
    folder = finished(tmp_path / os.fsdecode(b"run-\xff"))
    page = tmp_path / "report.html"
    assert cli.main(["report", str(folder), "--out", str(page)]) == 0
    assert "run-\\udcff" in page.read_text(encoding="utf-8")


def test_names_that_a_terminal_would_obey_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    name = tmp_path / "a\x1b[2J\nflipout report: all is well"
    assert cli.main(["report", str(name)]) == 2
    name.mkdir()
    (name / "config.json").write_text(json.dumps({"experiment": "toy", "preset": "smoke", "seed": 0}))
    assert cli.main(["report", str(name), str(finished(tmp_path / "b")), "--out", str(tmp_path / "page.html")]) == 0
    err = capsys.readouterr().err
    assert err.count("\n") == 2
    assert "\x1b" not in err


def test_a_name_of_any_length_in_a_file_is_shortened(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)
    folder = finished(tmp_path / "run", settings={"experiment": "x" * 100_000})
    assert cli.main(["report", "--redraw", str(folder)]) == 2
    assert "experiment: 'xxx" in (said := capsys.readouterr().err)
    assert len(said) < 1000


@pytest.mark.parametrize("kind", ["a pipe", "a link to a device"])
def test_a_report_does_not_replace_a_device(tmp_path: Path, capsys: pytest.CaptureFixture, kind: str) -> None:
    page = tmp_path / "page.html"
    if kind == "a pipe":
        os.mkfifo(page)
    else:
        page.symlink_to("/dev/null")
    assert cli.main(["report", str(finished(tmp_path / "run")), "--out", str(page)]) == 2
    assert f"{page} cannot be read or written (it is no plain file)" in capsys.readouterr().err
    assert page.is_fifo() or page.is_symlink()


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 3000, "nowhere"])
def test_a_folder_of_data_that_cannot_be(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(files.VARIABLE, name)
    with pytest.raises(DataError, match="which is not a folder"):
        files.named_folder()
    assert doctor.diagnose() == 1


def test_doctor_goes_on_where_a_driver_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("CUDA driver initialization failed,\nyou might not have a CUDA gpu.")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", broken)
    assert doctor.diagnose() == 0
    out = capsys.readouterr().out
    assert r"cannot be found out (RuntimeError: CUDA driver initialization failed,\nyou might not" in out
    assert "MNIST" in out
