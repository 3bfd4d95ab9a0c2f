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

from ..door import SHORT, Mismatch, in_one_line, is_unfinished, read_plain, write_atomically
from ..extras import import_extra
from .environment import describe_environment
from .files import CHECKSUMS, RunFiles
from .metrics import METRICS
from .progress import RunProgress
from .reader import Environment
from .results import to_json
from .runs import CONFIG, ENVIRONMENT, RESULT, Run

LOCK = ".lock"
_BEGUN = (LOCK, CHECKSUMS)  # what may be there before the config is
_FILES = (METRICS, ENVIRONMENT, CHECKSUMS, CONFIG)  # the config goes last: while it is there, a run can be resumed


@contextmanager
def open_run(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    resume: bool,
    tensorboard: bool = False,
    progress: RunProgress,
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
        run = Run(folder, settings["seed"], device, progress)
        files = run.files
        before = _tidied(files)
        pieces_before, failed = _pieces(folder), False
        try:
            if CONFIG not in before:
                files.write(CONFIG, to_json(settings))
            elif choices:
                files.write(CONFIG, to_json(_extended(files.load(CONFIG), settings, choices)))
            run.environment = _begun(files, device)
            files.write(ENVIRONMENT, to_json(run.environment))
            run.board = None if writer_type is None else _board(writer_type, folder)
            run.drop_unfinished_metrics()
            try:
                yield run
            finally:
                run.wait_for_checkpoints()
        except Exception:
            failed = _pieces(folder) == pieces_before  # no piece was finished that a resumed run could use
            if failed:
                _undo(folder, before)
            raise
        finally:
            if not failed and run.environment:
                run.note_time()
            if run.board is not None:
                run.board.close()


def _tidied(files: RunFiles) -> dict[str, bytes]:
    """Delete what killed processes left, and return the files that a session changes."""
    try:
        files.tidy()
        paths = {name: files.folder / name for name in _FILES}
        return {name: read_plain(path) for name, path in paths.items() if path.exists()}
    except OSError as error:
        raise RunError(
            f"{error.filename} cannot be read ({error.strerror}): put the file back, or choose another folder with "
            "--out."
        ) from error


def _undo(folder: Path, before: Mapping[str, bytes]) -> None:
    """Leave the folder as it was before a session that achieved nothing. Of a new run nothing stays."""
    with suppress(OSError):  # the cause of the failure may strike here too; the run can be resumed anyway
        if CONFIG in before:
            for name, content in before.items():
                write_atomically(folder / name, content)
            return
        for name in ("pieces", "figures", "tensorboard"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in (*_FILES, LOCK):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Refuse if another process works on the run there, and keep others out meanwhile. Refuse links in the folder."""
    RunFiles(folder).refuse_links()
    try:
        import fcntl
    except ImportError:  # Windows has no fcntl
        yield
        return
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(folder / LOCK, "wb", opener=lambda name, _: os.open(name, flags, 0o666)) as lock:
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


def _begun(files: RunFiles, device: torch.device) -> dict[str, Any]:
    """Return what environment.json says when a session begins: the sessions before it, and this one."""
    past: dict[str, Any] = {"sessions": []}
    path = files.folder / ENVIRONMENT
    if path.exists():
        try:
            past = files.load(ENVIRONMENT)
            Environment.of(past)
        except (OSError, Mismatch) as error:
            raise RunError(
                f"{path} is broken ({error}): copy it again, or delete it and continue with --resume, without the "
                "times of earlier sessions."
            ) from error
    # Early versions wrote one commit for all sessions.
    sessions = [{"commit": past["commit"], **session} if "commit" in past else session for session in past["sessions"]]
    here = describe_environment(device)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    now = {"started": started, "seconds": 0.0, "commit": here["commit"], "finished": False}
    return {**here, "sessions": [*sessions, now]}


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
        found = folder.iterdir() if folder.exists() else ()
        # A process that was killed before it had begun leaves a lock, and the beginning of a config.
        others = sorted(path.name for path in found if path.name not in _BEGUN and not is_unfinished(path))
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
        there = flat(RunFiles(folder).load(CONFIG))
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        reason = error if isinstance(error, (OSError, Mismatch)) else "expected an object of settings"
        raise RunError(
            f"{folder / CONFIG} is not the config of a run ({reason}): copy it again, or choose another folder with "
            "--out."
        ) from error
    requested = flat(settings)
    changed = [key for key in {**there, **requested} if key not in choices and there.get(key) != requested.get(key)]
    if changed:
        named = [
            f"{in_one_line(key)}: {SHORT.repr(requested.get(key))} given, {SHORT.repr(there.get(key))} there"
            for key in changed[:5]
        ]
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
