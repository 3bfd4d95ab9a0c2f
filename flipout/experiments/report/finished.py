"""The folder of a finished run, read for the report."""

import math
import os
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from flipout.errors import DataError

from ..door import Mismatch
from ..running.files import RunFiles
from ..running.reader import Environment, SavedSettings, Session, convert
from ..running.results import Check, Result
from ..running.runs import CONFIG, ENVIRONMENT, RESULT
from .values import theory_first

T = TypeVar("T")


@dataclass(frozen=True)
class Finished:
    """The content of one folder. `name` distinguishes it from other runs; `images` are its figures in base64."""

    folder: Path
    name: str
    anchor: str
    result: Result
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    sessions: tuple[Session, ...]
    images: tuple[str, ...]
    unchecked: tuple[str, ...] = ()  # files without a checksum

    @property
    def device(self) -> str:
        return self.environment["device"]

    @property
    def started(self) -> datetime:
        return self.sessions[0].started

    @property
    def seconds(self) -> float:
        return math.fsum(session.seconds for session in self.sessions)

    @property
    def facts(self) -> dict[str, Any]:
        """The environment, with the commits of all sessions."""
        commits = dict.fromkeys(session.commit for session in self.sessions)
        return {**self.environment, "commit": ", ".join(map(str, commits)) if len(commits) > 1 else next(iter(commits))}

    @property
    def own_name(self) -> str:
        """The name, if it says more than the experiment and the preset; else empty."""
        experiment, preset = self.result.experiment, self.result.preset
        return "" if self.name in (experiment, preset, f"{experiment}-{preset}") else self.name

    @property
    def checks(self) -> list[tuple[str, Check]]:
        """The checks with their anchors; claims that must hold come first."""
        ordered = theory_first(self.result.checks)
        return [(f"check-{place}-{self.anchor}", check) for place, check in enumerate(ordered, 1)]


def read(folders: Sequence[Path]) -> list[Finished]:
    """Read the folders of finished runs."""
    runs: list[Finished] = []
    for folder in folders:
        runs.append(_read(Path(folder), {run.anchor for run in runs}))
    return [replace(run, name=_name(run, runs)) for run in runs]


def _name(run: Finished, runs: Sequence[Finished]) -> str:
    """Return the end of a path, as long as it takes to tell it from other runs of the experiment."""
    parts = run.folder.parts
    others = {other.folder.parts for other in runs if other.result.experiment == run.result.experiment} - {parts}
    depth = next(
        depth for depth in range(1, len(parts) + 1) if all(parts[-depth:] != other[-depth:] for other in others)
    )
    return "/".join(parts[-depth:])


def _read(folder: Path, taken: set[str]) -> Finished:
    finished = "Give the folder of a finished run, as `flipout run NAME` leaves it."
    if not folder.is_dir():
        wrong = "is a file, and a run is a folder" if folder.exists() else "does not exist"
        raise DataError(f"{folder} {wrong}. {finished}")
    if not (folder / CONFIG).is_file():
        raise DataError(f"{folder} is not a run: there is no {CONFIG} in it. {finished}")
    files = RunFiles(folder)
    config, settings = _record(files, CONFIG, partial(convert, kind=SavedSettings), "is not the file that a run writes")
    if not (folder / RESULT).is_file():
        raise DataError(
            f"{folder} is unfinished: there is no {RESULT} in it. Finish it with the command that started it and "
            f"--resume (`flipout run {settings.experiment} ... --resume`), or leave it out of the report."
        )
    result = Result.read(folder / RESULT, settings.shown or (), files)
    facts, environment = _record(files, ENVIRONMENT, Environment.of, "does not say what the run cost")
    images = tuple(_image(files, f"figures/{figure.name}.svg") for figure in result.figures)
    facts = {key: value for key, value in facts.items() if key != "sessions"}
    anchor, unchecked = _anchor(result.experiment, taken), tuple(sorted(files.unchecked))
    return Finished(folder.resolve(), "", anchor, result, config, facts, environment.sessions, images, unchecked)


def _record(files: RunFiles, name: str, record_of: Callable[[Any], T], wrong: str) -> tuple[dict[str, Any], T]:
    """Return the whole content of a file, and the part of it that the report needs as a record."""
    try:
        content = files.load(name)
        return content, record_of(content)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{files.folder / name} {wrong} ({type(error).__name__}: {error}). Give the folder of a finished run, as "
            "`flipout run NAME` leaves it."
        ) from error


def _image(files: RunFiles, name: str) -> str:
    path = files.folder / name
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(files.folder)):  # resolve() fails on loops
        raise DataError(
            f"{path} leads out of the folder of the run, and reports publish figures. Put the file itself there."
        )
    try:
        return b64encode(files.read(name)).decode()
    except (OSError, Mismatch) as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}: {error}), and result.json names this figure. Draw it "
            f"again from what the run holds: `flipout report {files.folder} --redraw`."
        ) from error


def _anchor(experiment: str, taken: set[str]) -> str:
    anchor = first = "run-" + re.sub(r"[^a-z0-9]+", "-", experiment.lower()).strip("-")
    copy = 1
    while anchor in taken:
        copy += 1
        anchor = f"{first}-{copy}"
    return anchor
