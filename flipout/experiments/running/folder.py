"""Opening the folder of a run: new or resumed, by one process at a time, with the settings it was started with."""

import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from flipout.errors import RunError

from ..extras import import_extra
from .atomic import write_atomically
from .environment import environment
from .progress import Progress
from .reader import load
from .results import to_json
from .runs import CONFIG, ENVIRONMENT, METRICS, RESULT, Run

LOCK = ".lock"


@contextmanager
def open_run(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    resume: bool,
    tensorboard: bool = False,
    progress: Progress,
    choices: Collection[str] = (),
) -> Iterator[Run]:
    """Open a new run, or resume one, for this process alone.

    Args:
        folder: The folder of the run.
        settings: All settings. A resumed run must have the same ones.
        resume: Continue the run in the folder, or start it if there is none.
        tensorboard: Log the metrics for TensorBoard too.
        progress: Shows how far the run is.
        choices: Settings that may differ each time. Lists among them add up.
    """
    settings = json.loads(to_json(settings))
    device = torch.device(settings["device"])
    writer_type = _writer_type() if tensorboard else None
    _check(folder, settings, resume, choices)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be created ({error.strerror}): choose another folder with --out.") from error
    with locked(folder):
        _check(folder, settings, resume, choices)  # again: another process may have been here in between
        is_new = not (folder / CONFIG).exists()
        there = [path for path in (folder / CONFIG, folder / ENVIRONMENT) if path.exists()]
        before = {path: path.read_text(encoding="utf-8") for path in there}
        pieces_before, failed = _pieces(folder), False
        if is_new:
            write_atomically(folder / CONFIG, to_json(settings))
        elif choices:
            write_atomically(folder / CONFIG, to_json(_extended(load(folder / CONFIG), settings, choices)))
        _begin_session(folder / ENVIRONMENT, device)
        board = None if writer_type is None else _board(writer_type, folder)
        run = Run(folder, settings["seed"], device, progress, board)
        run.drop_unfinished_metrics()
        try:
            try:
                yield run
            finally:
                run.wait_for_checkpoints()
        except Exception:
            failed = _pieces(folder) == pieces_before  # nothing was made that a resumed run could use
            if failed and is_new:
                for name in (ENVIRONMENT, METRICS, CONFIG, LOCK):
                    (folder / name).unlink(missing_ok=True)
                with suppress(OSError):
                    folder.rmdir()
            elif failed:
                for path, text in before.items():
                    write_atomically(path, text)
            raise
        finally:
            if not failed:
                run.note_time()
            if board is not None:
                board.close()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Refuse if another process works on the run there, and keep others out meanwhile."""
    try:
        import fcntl
    except ImportError:  # Windows has no fcntl
        yield
        return
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunError(
                f"Another process is working on the run in {folder}: wait for it, or choose another folder with --out."
            ) from error
        yield


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by the names of their options: pretraining.accuracy."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {prefix + key: value}
    return found


def _begin_session(path: Path, device: torch.device) -> None:
    """Write the environment of this session, after the sessions that were before."""
    past = load(path) if path.exists() else {"sessions": []}
    # Early versions wrote one commit for all sessions.
    sessions = [{"commit": past["commit"], **session} if "commit" in past else session for session in past["sessions"]]
    here = environment(device)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    now = {"started": started, "seconds": 0.0, "commit": here["commit"], "finished": False}
    write_atomically(path, to_json({**here, "sessions": [*sessions, now]}))


def _pieces(folder: Path) -> set[tuple[str, int]]:
    """Return the files of all pieces with the time each was written."""
    return {(path.name, path.stat().st_mtime_ns) for path in (folder / "pieces").rglob("*")}


def _extended(there: dict[str, Any], requested: Mapping[str, Any], choices: Collection[str]) -> dict[str, Any]:
    """Return the settings of a resumed run with the choices of this session."""
    for name in choices:
        value = requested[name]
        there[name] = list(dict.fromkeys([*there.get(name, ()), *value])) if isinstance(value, list) else value
    return there


def _check(folder: Path, settings: Mapping[str, Any], resume: bool, choices: Collection[str]) -> None:
    """Refuse a folder with other files, with a run that is not resumed, or with a run of other settings."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file: choose a folder with --out.")
    if not (folder / CONFIG).exists():
        leftovers = (LOCK, CONFIG + ".new")  # of a process that was killed before it had begun
        others = sorted(path.name for path in folder.iterdir() if path.name not in leftovers) if folder.exists() else []
        if others:
            raise RunError(f"{folder} holds {others[0]} and no run: choose another folder with --out.")
        return
    if not resume:
        state = "finished" if (folder / RESULT).exists() else "unfinished"
        raise RunError(
            f"{folder} already holds a run ({state}). Continue it with --resume, choose another folder with --out, or "
            "delete it."
        )
    try:
        there = flat(load(folder / CONFIG))
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(f"{folder / CONFIG} is not the config of a run: choose another folder with --out.") from error
    requested = flat(settings)
    changed = [key for key in {**there, **requested} if key not in choices and there.get(key) != requested.get(key)]
    if changed:
        named = [f"{key}: {requested.get(key)!r} given, {there.get(key)!r} there" for key in changed[:5]]
        more = [f"and {len(changed) - 5} more"] * (len(changed) > 5)
        raise RunError(
            f"--resume: the run in {folder} was started with other settings ({', '.join([*named, *more])}). Give the "
            "same ones, or start another run with --out."
        )


def _writer_type() -> Any:
    import_extra("tensorboard", "--tensorboard", "tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter


def _board(writer_type: Any, folder: Path) -> Any:
    """Begin the log for TensorBoard afresh: the metrics that the run has are written to it again."""
    shutil.rmtree(folder / "tensorboard", ignore_errors=True)
    return writer_type(os.fspath(folder / "tensorboard"))
