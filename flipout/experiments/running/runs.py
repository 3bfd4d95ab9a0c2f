"""A run is a folder of finished pieces of work. It can be stopped at any moment and resumed.

Every piece has a name. Its randomness depends only on the run's seed and that name, and its outcome is a file that is
written whole or not at all. A resumed run skips the pieces that are there and makes the others as it would have before.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flipout.errors import RunError

from ..door import Mismatch, replacing
from .files import RunFiles
from .metrics import METRICS, Metrics
from .progress import RunProgress
from .reader import decode
from .results import Figure, Number, Result, to_json

CONFIG, ENVIRONMENT, RESULT = "config.json", "environment.json", "result.json"
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
    progress: RunProgress
    board: Any = None  # a SummaryWriter of TensorBoard
    figures: list[Figure] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)  # what environment.json says
    files: RunFiles = field(init=False)
    metrics: Metrics = field(init=False)
    _piece: str = ""
    _writing: dict[str, "Future[None]"] = field(default_factory=dict)
    _started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.files = RunFiles(self.folder)
        self.metrics = Metrics(self.files)

    def piece(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the outcome of a piece, which must fit in JSON. `make` is called only if the file is not there."""
        file = _file(name, ".json")
        if not (self.folder / file).exists():
            with self._working_on(name):
                outcome = make()
                self.metrics.seal(name)
                self.files.write(file, to_json(outcome))
        with _refusing_broken(self.folder / file):
            return self.files.load(file)

    def tensors(self, name: str, make: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return a piece that consists of tensors. `make` is called only if the file is not there."""
        file = _file(name, ".safetensors")
        if not (self.folder / file).exists():
            with self._working_on(name):
                outcome = make()
                self.metrics.seal(name)
                self.files.write_tensors(file, outcome)
        return self._load_tensors(file)

    def read_piece(self, name: str) -> Any:
        """Return the outcome of a finished piece."""
        file = _file(name, ".json")
        with _refusing_broken(_there(self.folder / file)):
            return self.files.load(file)

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        """Return the tensors of a finished piece."""
        file = _file(name, ".safetensors")
        _there(self.folder / file)
        return self._load_tensors(file)

    def has_piece(self, name: str) -> bool:
        """Return True if the outcome of a piece is in the folder: committed runs leave large ones out."""
        return (self.folder / _file(name, ".json")).exists()

    def measured(self) -> Mapping[str, Number | None]:
        """Return the numbers in the result of a finished run."""
        path = _there(self.folder / RESULT)
        with _refusing_broken(path):
            return Result.of(self.files.load(RESULT)).measured

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
        """Return a path of this run. Refuse if there is no such file, or if its content was changed."""
        with _refusing_broken(_there(path)):
            self.files.read(path.relative_to(self.folder).as_posix())
        return path

    def note_file(self, name: str) -> None:
        """Write down the checksum of a file of this run that was just written."""
        self.files.note(name, (self.folder / name).read_bytes())

    def checkpoint(self, name: str, tensors: Mapping[str, Tensor], state: Any) -> None:
        """Save how far a piece is, in the background, for a run that is resumed before the piece is finished."""
        (self.folder / "pieces").mkdir(exist_ok=True)
        self._wait_for(name)
        copies = {key: value.detach().to("cpu", copy=True) for key, value in tensors.items()}
        write = partial(self.files.write_tensors, _file(name, _CHECKPOINT), copies, {"told": to_json(state)})
        self._writing[name] = _WRITER.submit(write)

    def last_checkpoint(self, name: str) -> tuple[dict[str, Tensor], Any] | None:
        """Return the tensors, on the CPU, and the state of the last checkpoint."""
        self._wait_for(name)
        file = _file(name, _CHECKPOINT)
        if not (self.folder / file).exists():
            return None
        with _refusing_broken(self.folder / file):
            tensors, metadata = self.files.load_tensors(file)
            if "told" not in metadata:
                raise Mismatch("metadata: no 'told'; expected the state of a checkpoint")
            return tensors, decode(metadata["told"].encode())

    def drop_checkpoint(self, name: str) -> None:
        """Delete the checkpoint of a piece that is finished."""
        self._wait_for(name)
        (self.folder / _file(name, _CHECKPOINT)).unlink(missing_ok=True)

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
        self._to_board(self.metrics.add(self._piece, step, metrics))

    def draw(self, name: str, caption: str, figure: Any) -> None:
        """Save a figure of matplotlib as SVG and PNG. The same figure always gives the same bytes."""
        from matplotlib import rc_context

        drawn = Figure(name, caption)  # refuses names that lead out of the folder
        (self.folder / "figures").mkdir(exist_ok=True)
        for kind in ("svg", "png"):
            file = f"figures/{name}.{kind}"
            with replacing(self.folder / file) as fresh, rc_context({"svg.hashsalt": name}):
                figure.savefig(fresh, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
                self.files.note(file, fresh.read_bytes())
        self.figures.append(drawn)

    def write(self, result: Result) -> None:
        """Write the result. The run is finished."""
        text = result.to_json()
        Result.of(decode(text.encode()))  # refuses what no report could read
        self.files.write(RESULT, text)
        self.note_time(finished=True)

    def note_time(self, **more: Any) -> None:
        """Write down how long this session has taken so far."""
        self.environment["sessions"][-1] |= {"seconds": round(time.monotonic() - self._started, 1), **more}
        self.files.write(ENVIRONMENT, to_json(self.environment))

    def drop_unfinished_metrics(self) -> None:
        """Delete the metrics of unfinished pieces, which will be made and logged again."""
        names = [path.name for path in (self.folder / "pieces").glob("*") if not path.name.endswith(_CHECKPOINT)]
        pieces = {name.removesuffix(end) for name in names for end in (".json", ".safetensors") if name.endswith(end)}
        with _refusing_broken(self.folder / METRICS, "restore it from a copy, or delete the line that is named"):
            kept = self.metrics.keep(pieces, lambda piece: piece.replace("/", ".") in pieces)
        for line in kept:
            self._to_board(line)

    def _metrics(self) -> list[dict[str, Any]]:
        with _refusing_broken(_there(self.folder / METRICS)):
            return self.metrics.read()

    def _load_tensors(self, file: str) -> dict[str, Tensor]:
        with _refusing_broken(self.folder / file):
            return {key: value.to(self.device) for key, value in self.files.load_tensors(file)[0].items()}

    def _wait_for(self, name: str) -> None:
        if name in self._writing:
            self._writing.pop(name).result()

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


def _there(path: Path) -> Path:
    if not path.exists():
        raise RunError(f"{path} is not there, and {_NEEDED}")
    return path


def _file(piece: str, suffix: str) -> str:
    """Return the name of a piece's file in the folder of the run."""
    return f"pieces/{piece.replace('/', '.')}{suffix}"


@contextmanager
def _refusing_broken(
    path: Path, fix: str = "copy it again, or delete it and continue with --resume, which makes it again"
) -> Iterator[None]:
    """Turn errors of reading a file of the run into one that says what to do."""
    try:
        yield
    except Mismatch as error:
        raise RunError(f"{path} is broken ({error}): {fix}.") from error
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}): {fix}.") from error
