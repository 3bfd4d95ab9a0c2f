"""The folder of a run: opened once, taken up again, and refused if a piece is broken."""

import json
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from flipout.errors import DataError, RunError
from flipout.experiments.running import folder as folder_of_run
from flipout.experiments.running.files import RunFiles
from flipout.experiments.running.folder import open_run
from flipout.experiments.running.progress import RunProgress
from tests.experiments.running.toys import run, sessions
from tests.experiments.toy_experiment import ToyConfig


def test_a_run_that_came_and_went_meanwhile_is_left_alone(tmp_path, monkeypatch):
    locked = folder_of_run.locked

    @contextmanager
    def late(folder: Path) -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(folder_of_run, "locked", locked)
            run(folder, ToyConfig(seed=1))
        with locked(folder):
            yield

    monkeypatch.setattr(folder_of_run, "locked", late)
    with pytest.raises(RunError, match="already holds a run"):
        run(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["seed"] == 1
    assert len(sessions(tmp_path)) == 1


def test_randomness_is_of_the_seed_and_the_name(tmp_path):
    settings = {"seed": 3, "device": "cpu"}
    with open_run(tmp_path, settings, resume=False, progress=RunProgress()) as run:
        draws = [run.generator(name).initial_seed() for name in ("a", "b", "a")]
        assert draws[0] == draws[2] != draws[1]
        run.seed = 4
        assert run.generator("a").initial_seed() != draws[0]
        with pytest.raises(RunError, match="Metrics belong to a piece of work"):
            run.log(1, loss=1.0)


def test_what_is_kept_is_of_its_moment_and_written_by_the_end(tmp_path, monkeypatch):
    how: dict[str, Any] = {"settings": {"seed": 0, "device": "cpu"}, "progress": RunProgress()}
    go, write = threading.Event(), RunFiles.write_tensors

    def slow(*arguments: Any) -> None:
        assert go.wait(60)
        write(*arguments)

    monkeypatch.setattr(RunFiles, "write_tensors", slow)
    weights = torch.ones(3)
    with open_run(tmp_path, resume=False, **how) as run:
        run.checkpoint("some", {"weights": weights}, ["epoch 1"])
        weights.zero_()  # the next epoch, while that is being written
        assert not list(tmp_path.glob("pieces/*"))
        go.set()
    assert [path.name for path in tmp_path.glob("pieces/*")] == ["some.unfinished.safetensors"]
    with open_run(tmp_path, resume=True, **how) as run:
        kept = run.last_checkpoint("some")
        assert kept is not None
        assert kept[0]["weights"].tolist() == [1, 1, 1]
        assert kept[1] == ["epoch 1"]
        run.checkpoint("some", {"weights": weights}, ["epoch 2"])
        run.drop_checkpoint("some")
    assert not list(tmp_path.glob("pieces/*"))


def test_what_cannot_be_kept_is_not_passed_over(tmp_path, monkeypatch):
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFiles, "write_tensors", full)
    settings = {"seed": 0, "device": "cpu"}
    with (
        pytest.raises(OSError, match="No space left"),
        open_run(tmp_path, settings, resume=False, progress=RunProgress()) as run,
    ):
        run.checkpoint("some", {"weights": torch.ones(3)}, [])


def test_a_run_that_could_not_begin_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    how: dict[str, Any] = {"settings": {"seed": 0, "device": "cpu"}, "resume": False, "progress": RunProgress()}
    with pytest.raises(ZeroDivisionError), open_run(folder, **how):
        raise ZeroDivisionError
    assert not folder.exists()
    with open_run(folder, **how) as run:
        run.piece("some", lambda: 1)
    assert (folder / "config.json").exists()


def test_a_broken_piece_is_refused_by_name(tmp_path: Path) -> None:
    how: dict[str, Any] = {"settings": {"seed": 0, "device": "cpu"}, "progress": RunProgress()}
    with open_run(tmp_path, resume=False, **how) as run:
        run.piece("some", lambda: 1)
        run.tensors("more", lambda: {"weights": torch.ones(3)})
    for name, again in (
        ("some.json", lambda run: run.piece("some", lambda: 1)),
        ("more.safetensors", lambda run: run.tensors("more", dict)),
    ):
        path = tmp_path / "pieces" / name
        path.write_bytes(path.read_bytes()[:-1] + (b"{" if name == "some.json" else b""))
        with (
            open_run(tmp_path, resume=True, **how) as run,
            pytest.raises(RunError, match=rf"{name} is broken .* delete it and continue with --resume"),
        ):
            again(run)


def test_each_session_says_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for commit in ("abc", "def"):
        monkeypatch.setenv("FLIPOUT_COMMIT", commit)
        with open_run(tmp_path, {"seed": 0, "device": "cpu"}, resume=True, progress=RunProgress()) as run:
            run.piece(commit, lambda: 1)
    assert [session["commit"] for session in sessions(tmp_path)] == ["abc", "def"]
    path = tmp_path / "environment.json"
    held = json.loads(path.read_text())
    del held["sessions"][0]["commit"], held["sessions"][1]["commit"]  # as runs of an early version have it
    path.write_text(json.dumps({**held, "commit": "old"}))
    (tmp_path / "checksums.jsonl").unlink()
    with open_run(tmp_path, {"seed": 0, "device": "cpu"}, resume=True, progress=RunProgress()) as run:
        run.piece("last", lambda: 1)
    assert [session["commit"] for session in sessions(tmp_path)] == ["old", "old", "def"]


def test_a_session_that_failed_before_it_made_anything_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    settings = {"seed": 0, "device": "cpu", "rows": ["a"]}

    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def extended(piece: str | None) -> None:
        how: Any = {"resume": True, "progress": RunProgress(), "choices": ["rows"]}
        with open_run(tmp_path, {**settings, "rows": ["b"]}, **how) as run:
            if piece is not None:
                run.piece(piece, lambda: 1)
            raise DataError("no data")

    with open_run(tmp_path, settings, resume=False, progress=RunProgress()) as run:
        run.piece("a", lambda: 1)
    before = files()
    with pytest.raises(DataError):
        extended(None)
    assert files() == before
    with pytest.raises(DataError):
        extended("b")
    assert json.loads((tmp_path / "config.json").read_text())["rows"] == ["a", "b"]
    assert len(sessions(tmp_path)) == 2


@pytest.mark.parametrize("room", [0, 60, 300, 700])
def test_a_start_on_a_full_disk_leaves_nothing(tmp_path: Path, room: int) -> None:
    """Whatever write fails first, the folder can be used again, with --resume and without."""
    folder = tmp_path / "run"
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        with (
            pytest.raises(OSError, match=r"File too large|No space left"),
            open_run(folder, {"seed": 0, "device": "cpu"}, resume=False, progress=RunProgress()) as run,
        ):
            run.piece("some", lambda: "x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not folder.exists()
    with open_run(folder, {"seed": 0, "device": "cpu"}, resume=room > 100, progress=RunProgress()) as run:
        assert run.piece("some", lambda: 1) == 1


def test_an_environment_that_no_run_writes_is_refused_in_one_line(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "checksums.jsonl").unlink()  # as in runs of early versions
    for text in ("", "[]", "{}", '{"sessions": 3, "device": "cpu"}'):
        (tmp_path / "environment.json").write_text(text)
        with pytest.raises(RunError, match=r"environment\.json is broken \(.*delete it and continue with --resume"):
            run(tmp_path, resume=True)
        assert (tmp_path / "environment.json").read_text() == text
    (tmp_path / "environment.json").unlink()
    run(tmp_path, resume=True)
