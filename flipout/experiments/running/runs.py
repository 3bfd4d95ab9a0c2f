"""A run is a folder of finished pieces of work. It can be stopped at any moment and resumed.

Every piece has a name. Its randomness depends only on the run's seed and that name, and its outcome is a file that is
written whole or not at all. A resumed run skips the pieces that are there and makes the others as it would have before.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from flipout.errors import RunError

from .atomic import write_atomically
from .progress import Progress
from .reader import load, load_lines
from .results import Figure, Result, finite, to_json

CONFIG, ENVIRONMENT, METRICS, RESULT = "config.json", "environment.json", "metrics.jsonl", "result.json"
_CHECKPOINT = ".unfinished.safetensors"
_WRITER = ThreadPoolExecutor(1, "checkpoints")
_NEEDED = (
    "the figures of the run are drawn from it: they cannot be drawn again. Keep the figures that there are, or run the "
    "experiment again."
)


@dataclass
class Run:
    """One run: where its files are, and the pieces of its work."""

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
        """Return the outcome of a piece, which must fit in JSON. `make` is called only if the file is not there."""
        path = self._path(name, ".json")
        if not path.exists():
            with self._working_on(name):
                write_atomically(path, to_json(make()))
        with _refusing_broken(path):
            return load(path)

    def tensors(self, name: str, make: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return a piece that consists of tensors. `make` is called only if the file is not there."""
        path = self._path(name, ".safetensors")
        if not path.exists():
            with self._working_on(name):
                self._save(path, make())
        return self._load(path)

    def read_piece(self, name: str) -> Any:
        """Return the outcome of a finished piece."""
        path = self.existing(self._path(name, ".json"))
        with _refusing_broken(path):
            return load(path)

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        """Return the tensors of a finished piece."""
        return self._load(self.existing(self._path(name, ".safetensors")))

    def finished_pieces(self) -> list[str]:
        """Return the names of finished pieces, without those of tensors."""
        return sorted(path.stem for path in (self.folder / "pieces").glob("*.json"))

    def logged_pieces(self) -> list[str]:
        """Return the names of finished pieces that have metrics."""
        return list(dict.fromkeys(line["piece"] for line in self._metrics()))

    def metrics_of(self, name: str) -> list[dict[str, Any]]:
        """Return the metrics of a finished piece, one dictionary for each step."""
        found = [line for line in self._metrics() if line["piece"] == name]
        if not found:
            raise RunError(f"{self.folder / METRICS} has no line of {name}, and {_NEEDED}")
        return found

    def existing(self, path: Path) -> Path:
        """Return a path of this run, or refuse if there is no such file."""
        if not path.exists():
            raise RunError(f"{path} is not there, and {_NEEDED}")
        return path

    def checkpoint(self, name: str, tensors: Mapping[str, Tensor], state: Any) -> None:
        """Save how far a piece is, in the background, for a run that is resumed before the piece is finished."""
        (self.folder / "pieces").mkdir(exist_ok=True)
        self._wait_for(name)
        copies = {key: value.detach().to("cpu", copy=True) for key, value in tensors.items()}
        write = partial(self._save, self._path(name, _CHECKPOINT), copies, {"told": to_json(state)})
        self._writing[name] = _WRITER.submit(write)

    def last_checkpoint(self, name: str) -> tuple[dict[str, Tensor], Any] | None:
        """Return the tensors, on the CPU, and the state of the last checkpoint."""
        self._wait_for(name)
        path = self._path(name, _CHECKPOINT)
        if not path.exists():
            return None
        with _refusing_broken(path), safe_open(path, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, json.loads(file.metadata()["told"])  # noqa: SIM118

    def drop_checkpoint(self, name: str) -> None:
        """Delete the checkpoint of a piece that is finished."""
        self._wait_for(name)
        self._path(name, _CHECKPOINT).unlink(missing_ok=True)

    def wait_for_checkpoints(self) -> None:
        """Return when all checkpoints are on disk."""
        for name in list(self._writing):
            self._wait_for(name)

    def generator(self, name: str) -> torch.Generator:
        """Return the generator of a piece: its randomness comes from the run's seed and this name."""
        return torch.Generator().manual_seed(self.seed_of(name))

    def seed_of(self, name: str) -> int:
        """Return a seed made of the run's seed and a name."""
        return int.from_bytes(hashlib.sha256(f"{self.seed} {name}".encode()).digest()[:7], "big")

    def log(self, step: int, **metrics: float) -> None:
        """Append metrics of the piece that is being made."""
        if not self._piece:
            raise RunError("Metrics belong to a piece of work: log them inside the function that makes it.")
        line = finite({"piece": self._piece, "step": step, **metrics})
        with (self.folder / METRICS).open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(line) + "\n")
        self._to_board(line)

    def draw(self, name: str, caption: str, figure: Any) -> None:
        """Save a figure of matplotlib as SVG and PNG. The same figure always gives the same bytes."""
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
        """Write the result. The run is finished."""
        result.write(self.folder / RESULT)
        self.note_time(finished=True)

    def note_time(self, **more: Any) -> None:
        """Write down how long this session has taken so far."""
        path = self.folder / ENVIRONMENT
        environment = load(path)
        environment["sessions"][-1] |= {"seconds": round(time.monotonic() - self._started, 1), **more}
        write_atomically(path, to_json(environment))

    def drop_unfinished_metrics(self) -> None:
        """Delete the metrics of unfinished pieces, which will be made and logged again."""
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

    def _metrics(self) -> list[dict[str, Any]]:
        path = self.existing(self.folder / METRICS)
        with _refusing_broken(path):
            return load_lines(path)

    def _load(self, path: Path) -> dict[str, Tensor]:
        with _refusing_broken(path):
            return {key: value.to(self.device) for key, value in load_file(path).items()}

    def _save(self, path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
        fresh = path.with_name(path.name + ".new")
        try:
            save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, fresh, metadata)
        except SafetensorError as error:
            raise RunError(
                f"{path} could not be written ({error}). Free some space, and continue with --resume."
            ) from error
        fresh.replace(path)

    def _wait_for(self, name: str) -> None:
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
        self.note_time()

    def _to_board(self, line: Mapping[str, Any]) -> None:
        if self.board is not None:
            for key, value in line.items():
                if key not in ("piece", "step") and value is not None:
                    self.board.add_scalar(f"{line['piece']}/{key}", value, line["step"])


@contextmanager
def _refusing_broken(path: Path) -> Iterator[None]:
    """Turn errors of reading a file of the run into one that says what to do."""
    try:
        yield
    except (ValueError, SafetensorError) as error:
        raise RunError(
            f"{path} is broken ({error}): copy it again, or delete it and continue with --resume, which makes it again."
        ) from error
