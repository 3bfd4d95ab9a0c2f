"""A run is a folder of finished pieces of work, so that it can be stopped at any moment and taken up again.

Every piece has a name; its randomness comes from the run's seed and that name alone, and its outcome is a file that
appears whole or not at all. Taking a run up again skips the pieces that are there and makes the others as before.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from flipout.errors import RunError

from ..extras import import_extra
from .atomic import write_atomically
from .environment import environment
from .progress import Progress
from .reader import load_lines
from .results import Figure, Result, finite, to_json

CONFIG, ENVIRONMENT, METRICS, RESULT = "config.json", "environment.json", "metrics.jsonl", "result.json"
LOCK, UNFINISHED = ".lock", ".unfinished.safetensors"
_WRITER = ThreadPoolExecutor(1, "kept")
_DRAWN_FROM = (
    "the figures of the run are drawn from it: they cannot be drawn anew. Keep those that there are, or run the "
    "experiment again."
)


@dataclass
class Run:
    folder: Path
    seed: int
    device: torch.device
    progress: Progress
    board: Any = None  # a SummaryWriter of TensorBoard
    figures: list[Figure] = field(default_factory=list)
    _piece: str = ""
    _writing: dict[str, "Future[None]"] = field(default_factory=dict)
    _started: float = field(default_factory=time.monotonic)

    def piece(self, name: str, make: Callable[[], Any]) -> Any:
        """make(), whose outcome JSON can hold; once."""
        path = self._path(name, ".json")
        if not path.exists():
            with self._working_on(name):
                write_atomically(path, to_json(make()))
        with _whole(path):
            return _read(path)

    def tensors(self, name: str, make: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """make(), tensors by name; once."""
        path = self._path(name, ".safetensors")
        if not path.exists():
            with self._working_on(name):
                self._save(path, make())
        return self._load(path)

    def held(self, name: str) -> Any:
        """The outcome of a piece that is finished."""
        with _whole(self.there(self._path(name, ".json"))) as path:
            return _read(path)

    def held_tensors(self, name: str) -> dict[str, Tensor]:
        """Those of a piece that is finished."""
        return self._load(self.there(self._path(name, ".safetensors")))

    def measured(self) -> list[str]:
        """The names of finished pieces that have metrics."""
        return list(dict.fromkeys(line["piece"] for line in self._lines()))

    def logged(self, name: str) -> list[dict[str, Any]]:
        """The metrics of a finished piece, a step each."""
        found = [line for line in self._lines() if line["piece"] == name]
        if not found:
            raise RunError(f"{self.folder / METRICS} has no line of {name}, and {_DRAWN_FROM}")
        return found

    def there(self, path: Path) -> Path:
        """A file of this run, if it is there."""
        if not path.exists():
            raise RunError(f"{path} is not there, and {_DRAWN_FROM}")
        return path

    def finished(self) -> list[str]:
        """The names of pieces that JSON holds."""
        return sorted(path.stem for path in (self.folder / "pieces").glob("*.json"))

    def keep(self, name: str, tensors: Mapping[str, Tensor], told: Any) -> None:
        """How far a piece is, for a run that is taken up again before it is finished. Written beside what follows."""
        (self.folder / "pieces").mkdir(exist_ok=True)
        self._settle(name)
        now = {key: value.detach().to("cpu", copy=True) for key, value in tensors.items()}
        write = partial(self._save, self._path(name, UNFINISHED), now, {"told": to_json(told)})
        self._writing[name] = _WRITER.submit(write)

    def kept(self, name: str) -> tuple[dict[str, Tensor], Any] | None:
        """What was kept last, on the CPU."""
        self._settle(name)
        path = self._path(name, UNFINISHED)
        if not path.exists():
            return None
        with _whole(path), safe_open(path, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, json.loads(file.metadata()["told"])  # noqa: SIM118

    def let_go(self, name: str) -> None:
        """What was kept of a piece, now that it is finished."""
        self._settle(name)
        self._path(name, UNFINISHED).unlink(missing_ok=True)

    def settle(self) -> None:
        """All that is kept is written, from here on."""
        for name in list(self._writing):
            self._settle(name)

    def generator(self, name: str) -> torch.Generator:
        """The randomness of a piece of work, from the seed and its name."""
        return torch.Generator().manual_seed(self.seed_of(name))

    def seed_of(self, name: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{self.seed} {name}".encode()).digest()[:7], "big")

    def log(self, step: int, **metrics: float) -> None:
        """Of the piece that is being made."""
        if not self._piece:
            raise RunError("Metrics belong to a piece of work: log them inside of the function that makes it.")
        line = finite({"piece": self._piece, "step": step, **metrics})
        with (self.folder / METRICS).open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(line) + "\n")
        self._to_board(line)

    def draw(self, name: str, caption: str, figure: Any) -> None:
        """A figure of matplotlib as SVG and PNG, the same bytes whenever it is drawn."""
        from matplotlib import rc_context

        (self.folder / "figures").mkdir(exist_ok=True)
        for suffix in (".svg", ".png"):
            path = self.folder / "figures" / (name + suffix)
            fresh = path.with_name(f"{name}.new{suffix}")
            with rc_context({"svg.hashsalt": name}):
                figure.savefig(fresh, dpi=160, metadata={"Date": None} if suffix == ".svg" else None)
            fresh.replace(path)
        self.figures.append(Figure(name, caption))

    def write(self, result: Result) -> None:
        result.write(self.folder / RESULT)
        self.spend(finished=True)

    def spend(self, **more: Any) -> None:
        """Note the time that this session has taken so far."""
        path = self.folder / ENVIRONMENT
        held = _read(path)
        held["sessions"][-1] |= {"seconds": round(time.monotonic() - self._started, 1), **more}
        write_atomically(path, to_json(held))

    def _lines(self) -> list[dict[str, Any]]:
        path = self.there(self.folder / METRICS)
        with _whole(path):
            return load_lines(path)

    def _load(self, path: Path) -> dict[str, Tensor]:
        with _whole(path):
            return {key: value.to(self.device) for key, value in load_file(path).items()}

    def _save(self, path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
        fresh = path.with_name(path.name + ".new")
        try:
            save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, fresh, metadata)
        except SafetensorError as error:
            raise RunError(
                f"{path} could not be written ({error}). Make room for it, and go on by --resume."
            ) from error
        fresh.replace(path)

    def _settle(self, name: str) -> None:
        if name in self._writing:
            self._writing.pop(name).result()

    def _path(self, name: str, suffix: str) -> Path:
        return self.folder / "pieces" / (name.replace("/", ".") + suffix)

    @contextmanager
    def _working_on(self, name: str) -> Iterator[None]:
        self._piece = name
        (self.folder / "pieces").mkdir(exist_ok=True)
        yield
        self._piece = ""
        self.spend()

    def _to_board(self, line: Mapping[str, Any]) -> None:
        if self.board is not None:
            for key, value in line.items():
                if key not in ("piece", "step") and value is not None:
                    self.board.add_scalar(f"{line['piece']}/{key}", value, line["step"])

    def forget_unfinished(self) -> None:
        """Drop the metrics of pieces that are not finished: they will be made, and logged, again."""
        path = self.folder / METRICS
        kept = []
        for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            try:
                line = json.loads(text)
            except ValueError:
                break  # the last line of a process that was killed
            if any(self._path(line["piece"], suffix).exists() for suffix in (".json", ".safetensors")):
                kept.append(text + "\n")
                self._to_board(line)
        write_atomically(path, "".join(kept))


@contextmanager
def opened(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    resume: bool,
    tensorboard: bool = False,
    progress: Progress,
    choices: Collection[str] = (),
) -> Iterator[Run]:
    """The run in `folder`, new or taken up again, for this process alone. Settings that are `choices` may be others
    each time; lists among them add up."""
    settings = json.loads(to_json(settings))
    device = torch.device(settings["device"])
    writer = _writer() if tensorboard else None
    _check(folder, settings, resume, choices)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder} cannot be made ({error.strerror}): choose another folder with --out.") from error
    with alone(folder):
        _check(folder, settings, resume, choices)  # again: another process may have been here just before
        new = not (folder / CONFIG).exists()
        there = [path for path in (folder / CONFIG, folder / ENVIRONMENT) if path.exists()]
        before = {path: path.read_text(encoding="utf-8") for path in there}
        had, failed = _pieces(folder), False
        if new:
            write_atomically(folder / CONFIG, to_json(settings))
        elif choices:
            write_atomically(folder / CONFIG, to_json(_added(_read(folder / CONFIG), settings, choices)))
        past = folder / ENVIRONMENT
        held = _read(past) if past.exists() else {"sessions": []}
        sessions = [{"commit": held["commit"], **one} if "commit" in held else one for one in held["sessions"]]
        here = environment(device)
        began = datetime.now(UTC).isoformat(timespec="seconds")
        now = {"started": began, "seconds": 0.0, "commit": here["commit"], "finished": False}
        write_atomically(past, to_json({**here, "sessions": [*sessions, now]}))
        board = None if writer is None else _board(writer, folder)
        run = Run(folder, settings["seed"], device, progress, board)
        run.forget_unfinished()
        try:
            try:
                yield run
            finally:
                run.settle()
        except Exception:
            failed = _pieces(folder) == had  # and left nothing to go on with
            if failed and new:
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
                run.spend()
            if board is not None:
                board.close()


def _pieces(folder: Path) -> set[tuple[str, int]]:
    """With the moments that they were written."""
    return {(path.name, path.stat().st_mtime_ns) for path in (folder / "pieces").rglob("*")}


def _added(there: dict[str, Any], given: Mapping[str, Any], choices: Collection[str]) -> dict[str, Any]:
    for name in choices:
        own = given[name]
        there[name] = list(dict.fromkeys([*there.get(name, ()), *own])) if isinstance(own, list) else own
    return there


def _check(folder: Path, settings: Mapping[str, Any], resume: bool, choices: Collection[str]) -> None:
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file: choose a folder with --out.")
    if not (folder / CONFIG).exists():
        own = (LOCK, CONFIG + ".new")  # of a process that was killed before it had begun
        others = sorted(path.name for path in folder.iterdir() if path.name not in own) if folder.exists() else []
        if others:
            raise RunError(f"{folder} holds {others[0]} and no run: choose another folder with --out.")
        return
    if not resume:
        state = "finished" if (folder / RESULT).exists() else "unfinished"
        raise RunError(
            f"{folder} already holds a run ({state}). Go on with it by --resume, choose another folder with --out, or "
            "delete it."
        )
    try:
        there = flat(_read(folder / CONFIG))
    except (OSError, ValueError, AttributeError) as error:
        raise RunError(f"{folder / CONFIG} is not that of a run: choose another folder with --out.") from error
    given = flat(settings)
    changed = [key for key in {**there, **given} if key not in choices and there.get(key) != given.get(key)]
    if changed:
        shown = changed if len(changed) < 6 else [*changed[:5], f"and {len(changed) - 5} more"]
        told = {key: f"{key}: {given.get(key)!r} given, {there.get(key)!r} there" for key in changed}
        named = ", ".join(told.get(key, key) for key in shown)
        raise RunError(
            f"--resume: the run in {folder} was started with other settings ({named}). Give the same ones, or start a "
            "run of its own with --out."
        )


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """By the names that the options have: pretraining.accuracy."""
    made: dict[str, Any] = {}
    for key, value in settings.items():
        made |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {prefix + key: value}
    return made


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A piece of a run, or a refusal where it is broken."""
    try:
        yield path
    except (ValueError, SafetensorError) as error:
        raise RunError(
            f"{path} is broken ({error}): copy it again, or delete it and go on by --resume, which makes it anew."
        ) from error


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """No other process works on the run there."""
    try:
        import fcntl
    except ImportError:  # not on Windows
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


def _writer() -> Any:
    import_extra("tensorboard", "--tensorboard", "tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter


def _board(writer: Any, folder: Path) -> Any:
    """A log for TensorBoard, begun afresh: what the run had logged is written to it again."""
    shutil.rmtree(folder / "tensorboard", ignore_errors=True)
    return writer(os.fspath(folder / "tensorboard"))
