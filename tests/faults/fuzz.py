"""Every reader of files, and what must become of a mutated file: it is refused in one line, or it changes nothing.

A reader is what a user calls. It must end with the outcome of the clean folder or with a `FlipoutError` of one line, in
time, and without a change outside the folder.
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import torch

from flipout import es
from flipout.errors import FlipoutError
from flipout.experiments import cli
from flipout.experiments.data import checksums, files
from flipout.experiments.live.server import LiveServer
from flipout.experiments.running.folder import open_run
from flipout.experiments.running.progress import RunProgress
from flipout.variance import Measurements
from tests.es.toys import full
from tests.experiments.toy_experiment import TOY, ToyConfig, content
from tests.faults import adapters
from tests.faults.mutations import Mutation

SECONDS = 120  # after which a case hangs; the slowest takes two on a free machine
COMMITTED = Path(__file__).parents[2] / "results" / "variance-fc"
SETTINGS = {"seed": 0, "device": "cpu"}
# What the page says if checksums.jsonl lost lines. So it is not silent, and the rest of the page must be the same.
UNCHECKED = re.compile(r" \d+ files? without a checksum[^<]*")
opened = build_opener(ProxyHandler({})).open  # this machine is not to be reached through a proxy


@dataclass(frozen=True)
class Reader:
    """A function that makes a clean folder, and what a user calls to read it.

    Where nothing has a checksum, other numbers may be read: `is_checked` is False. `needs` names a package that may be
    missing.
    """

    make: Callable[[Path], object]
    read: Callable[[Path], Any]
    is_checked: bool = True
    needs: str = "torch"


@dataclass(frozen=True)
class Verdict:
    """How a case ended: "same", "refused", or what is wrong."""

    ended: str
    said: str = ""

    @property
    def is_right(self) -> bool:
        return self.ended in ("same", "refused")


def verdict(reader: Reader, clean: Path, file: str, mutation: Mutation, expected: Any) -> Verdict:
    """Mutate a file of a copy of the clean folder, and read it."""
    with tempfile.TemporaryDirectory() as scratch:
        outside, folder = Path(scratch, "outside"), Path(scratch, "work", clean.name)
        outside.mkdir()
        (outside / "precious").write_text("mine")
        shutil.copytree(clean, folder)
        mutation.apply(folder / file, outside / "precious")
        before = {path.name: path.read_bytes() for path in outside.iterdir()}
        try:
            with _alarm():
                found = reader.read(folder)
            ended = Verdict("same" if not reader.is_checked or found == expected else "a silent difference")
        except FlipoutError as error:
            ended = Verdict("said in several lines" if "\n" in str(error) else "refused", str(error))
        except TimeoutError:
            ended = Verdict("hung")
        except Exception as error:
            ended = Verdict("traceback", f"{type(error).__name__}: {error}")
        written = {path.name: path.read_bytes() for path in outside.iterdir()}
        return ended if written == before else Verdict("wrote outside", str(written))


def files_of(folder: Path) -> list[str]:
    """Return the files that may be mutated."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in found if name != ".lock")


def _command(*words: str) -> str:
    """Run the command line here, and return what it prints. A refusal becomes an error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(words)
    if status == 2:
        raise FlipoutError(err.getvalue().rstrip("\n"))
    return f"{status} {out.getvalue()}"


def _run(folder: Path) -> None:
    with contextlib.redirect_stderr(io.StringIO()):
        TOY.run(ToyConfig(size=3), folder, preset="smoke")


def _early(folder: Path) -> None:
    """Make a run of a version without checksums."""
    _run(folder)
    (folder / "checksums.jsonl").unlink()


def _unfinished(folder: Path) -> None:
    _run(folder)
    for name in ("result.json", "pieces/measure.2.json"):
        (folder / name).unlink()


def _report(folder: Path, *more: str) -> Any:
    page = folder.parent / "report.html"
    _command("report", str(folder), "--out", str(page), *more)
    text = page.read_text()
    page.unlink()
    return UNCHECKED.sub("", text)


def _redraw(folder: Path) -> Any:
    return _report(folder, "--redraw")


def _resume(folder: Path) -> Any:
    said = _command("run", "toy", "--preset", "smoke", "--out", str(folder), "--resume", "--size", "3")
    found = content(folder)
    # A piece that is made again logs its metrics again, behind those of the others.
    return said.replace(str(folder), ""), {**found, "metrics.jsonl": sorted(found["metrics.jsonl"].splitlines())}


def _evolve(folder: Path) -> Any:
    """Resume a strategy and make a step."""
    evolution = _resumed(folder)
    if evolution.generation == 0:
        evolution.run(3)  # there was no checkpoint, which resume says by what it returns
    evolution.step()
    return evolution.generation, _numbers(evolution.model)


def _resumed(folder: Path) -> es.EvolutionStrategy:
    """Resume a strategy. A refused checkpoint must leave it as it was."""
    evolution = full()
    before = _numbers(evolution.model)
    try:
        evolution.resume(folder)
    except FlipoutError:
        assert (evolution.generation, _numbers(evolution.model)) == (0, before), "a part of the checkpoint was loaded"
        raise
    return evolution


def _numbers(model: torch.nn.Module) -> list[list[float]]:
    return [value.flatten().tolist() for value in model.state_dict().values()]


def _language(folder: Path) -> None:
    """Train a small language model, and keep what `generate` reads."""
    words = ("--rows", "flipout", "--most", "1500", "--training.schedule.epochs", "1", "--out", str(folder))
    _command("run", "ptb-char", "--preset", "smoke", "--device", "cpu", *words)
    for name in files_of(folder):
        if name not in ("config.json", "checksums.jsonl", "pieces/flipout.0.weights.safetensors"):
            (folder / name).unlink()


def _early_language(folder: Path) -> None:
    _language(folder)
    (folder / "checksums.jsonl").unlink()


def _generate(folder: Path) -> Any:
    return _command("generate", str(folder), "--row", "flipout", "--length", "5", "--draws", "1")


def _early_checkpoint(folder: Path) -> None:
    full().run(3, checkpoint=folder)
    index = json.loads((folder / "checkpoint.json").read_text())
    (folder / "checkpoint.json").write_text(json.dumps({key: index[key] for key in ("tensors", "state")}))


def _piece_checkpoint(folder: Path) -> None:
    with open_run(folder, SETTINGS, resume=False, progress=RunProgress()) as run:
        run.checkpoint("network", {"weights": torch.arange(6.0)}, [{"epoch": 1}])


def _read_piece_checkpoint(folder: Path) -> Any:
    with open_run(folder, SETTINGS, resume=True, progress=RunProgress()) as run:
        last = run.last_checkpoint("network") or ({"weights": torch.arange(6.0)}, [{"epoch": 1}])  # made again
        return last[0]["weights"].tolist(), last[1]


def _watch(folder: Path) -> Any:
    """Ask the live page. What it could not read is said on the page, which counts as a refusal."""
    with LiveServer(folder) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        try:
            page = opened(server.address, timeout=SECONDS).read().decode()
        finally:
            thread.join()
    said = re.findall('<p class="note">(.*cannot be read|.*left out)', page)
    if said:
        raise FlipoutError(" ".join(said))
    return page


def _measurements(folder: Path) -> None:
    folder.mkdir()
    shutil.copy(COMMITTED / "measurements.json", folder)


def _read_measurements(folder: Path) -> Any:
    return Measurements.from_json(folder / "measurements.json").to_rows()


def _data_set(folder: Path) -> None:
    folder.mkdir()
    for name in ("images", "labels"):
        (folder / f"{name}.gz").write_bytes(_packed(name))


def _packed(name: str) -> bytes:
    return gzip.compress(name.encode() * 100, mtime=0)


def _read_data_set(folder: Path) -> Any:
    published: Any = tuple(
        checksums.File(name, {".gz": hashlib.sha256(_packed(name)).hexdigest()}, None)  # pyright: ignore
        for name in ("images", "labels")
    )
    before = os.environ.get(files.VARIABLE)
    os.environ[files.VARIABLE] = str(folder)
    try:
        contents = files.local(checksums.DataSet("a toy", published))
    finally:
        del os.environ[files.VARIABLE]
        if before is not None:
            os.environ[files.VARIABLE] = before
    return None if contents is None else contents.files


READERS = {
    "report": Reader(_run, _report),
    "report --redraw": Reader(_run, _redraw),
    "run --resume": Reader(_run, _resume),
    "run --resume, unfinished": Reader(_unfinished, _resume),
    "checkpoint of a piece": Reader(_piece_checkpoint, _read_piece_checkpoint),
    "checkpoint of a strategy": Reader(lambda folder: full().run(3, checkpoint=folder), _evolve),
    "data set": Reader(_data_set, _read_data_set),
    "report, early run": Reader(_early, _report, is_checked=False),
    "report --redraw, early run": Reader(_early, _redraw, is_checked=False),
    "run --resume, early run": Reader(_early, _resume, is_checked=False),
    "checkpoint of a strategy, early": Reader(
        _early_checkpoint, lambda folder: _resumed(folder).generation, is_checked=False
    ),
    "adapter": Reader(adapters.make, adapters.load, needs="peft"),
    "adapter, beside another": Reader(adapters.make, adapters.load_beside, needs="peft"),
    "watch": Reader(_unfinished, _watch, is_checked=False),
    "measurements": Reader(_measurements, _read_measurements, is_checked=False),
}
HEAVY = {
    "generate": Reader(_language, _generate),
    "generate, early run": Reader(_early_language, _generate, is_checked=False),
    "report --redraw, committed run": Reader(
        lambda folder: shutil.copytree(COMMITTED, folder), _redraw, is_checked=False
    ),
}


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
