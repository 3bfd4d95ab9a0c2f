"""What the files of a run say at this moment. A file may be half-written or broken, which must not raise an error."""

import stat
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..door import Mismatch, in_one_line, read_plain
from ..running.reader import convert, decode
from ..running.runs import CONFIG, METRICS, RESULT

MOST_BYTES = 2**25  # of metrics that are read, from the end of the file
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class State:
    """A moment of a run. `curves` has the points (step, value) of each metric by series."""

    name: str
    finished_pieces: tuple[str, ...]
    curves: dict[str, dict[str, Points]]
    is_finished: bool
    quiet: float | None  # seconds since a file changed; None if there is no file
    problems: tuple[str, ...]  # what could not be read, in words


def read_state(folder: Path) -> State:
    """Read the folder of a run, finished or not."""
    problems: list[str] = []
    config = _settings(folder, problems)
    pieces = sorted(path.stem for path in _entries(folder / "pieces") if path.suffix in (".json", ".safetensors"))
    watched = [folder / CONFIG, folder / METRICS, folder / RESULT, *_entries(folder / "pieces")]
    changed = [moment for path in watched if (moment := _changed(path)) is not None]
    return State(
        name=" · ".join(str(config[key])[:80] for key in ("experiment", "preset") if key in config)
        or in_one_line(folder.name),
        finished_pieces=tuple(name for name in dict.fromkeys(pieces) if not name.endswith(".unfinished")),
        curves=_curves(_lines(folder, problems)),
        is_finished=_changed(folder / RESULT) is not None,
        quiet=max(0.0, time.time() - max(changed)) if changed else None,
        problems=tuple(problems),
    )


def _settings(folder: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return convert(decode(_content(folder / CONFIG)), dict[str, Any])
    except (OSError, Mismatch) as error:
        problems.append(_unreadable(CONFIG, error))
        return {}


def _lines(folder: Path, problems: list[str]) -> list[dict[str, Any]]:
    """Return the valid lines of the metrics."""
    try:
        *complete, last = _content(folder / METRICS).split(b"\n")
    except FileNotFoundError:
        return []  # nothing was logged yet
    except OSError as error:
        problems.append(_unreadable(METRICS, error))
        return []
    found, bad = [], 0
    for text in [*complete, *([last] if last.endswith(b"}") else [])]:  # the last line may be half-written
        try:
            line = convert(decode(text), dict[str, Any])
        except Mismatch:
            bad += 1
            continue
        if isinstance(line.get("piece"), str) and _is_number(line.get("step")):
            found.append(line)
        else:
            bad += 1
    if bad:
        problems.append(f"{METRICS}: {bad} of its lines are no metrics, and left out.")
    return found


def _unreadable(name: str, error: OSError | Mismatch) -> str:
    reason = error.strerror if isinstance(error, OSError) else error
    return f"{name} cannot be read ({reason or type(error).__name__})."


def _curves(lines: list[dict[str, Any]]) -> dict[str, dict[str, Points]]:
    """Return the points of each metric by piece. Pieces of a single point each become one series."""
    by_piece: dict[str, dict[str, Points]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        for metric, value in line.items():
            if metric not in ("piece", "step") and _is_number(value):
                by_piece[metric][line["piece"]].append((float(line["step"]), float(value)))
    curves: dict[str, dict[str, Points]] = {}
    for metric, pieces in by_piece.items():
        series: dict[str, Points] = defaultdict(list)
        is_single = all(len(points) == 1 for points in pieces.values())
        for piece, points in pieces.items():
            stem, _, end = piece.replace("/", ".").rpartition(".")
            series[stem if is_single and stem and end.isdigit() else piece] += points
        curves[metric] = {name: sorted(points) for name, points in series.items()}
    return curves


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e30  # and so no NaN


def _content(path: Path) -> bytes:
    """Return the end of a plain file, from the beginning of a line. A link, a pipe or a device is not opened."""
    content = read_plain(path, last=MOST_BYTES + 1)
    return content.partition(b"\n")[2] if len(content) > MOST_BYTES else content


def _changed(path: Path) -> float | None:
    """Return when a plain file was last changed, or None."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_mtime if stat.S_ISREG(found.st_mode) else None


def _entries(folder: Path) -> list[Path]:
    try:
        return [*folder.iterdir()] if not folder.is_symlink() else []
    except OSError:
        return []
