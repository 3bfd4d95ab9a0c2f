"""The folder of a finished run, read for the report."""

import math
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from flipout.errors import DataError, InvalidArgument

from ..running.checked import Mismatch, checked, load
from ..running.results import Check, Result
from .values import theory_first


@dataclass(frozen=True)
class Session:
    started: datetime
    seconds: float
    commit: str | None
    finished: bool = True  # older files do not say

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise InvalidArgument(f"seconds: {self.seconds} found; expected a number ≥ 0")


@dataclass(frozen=True)
class Finished:
    """The content of one folder, whose `name` sets it apart. `images` are the figures of the result in base64."""

    folder: Path
    name: str
    anchor: str
    result: Result
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    sessions: tuple[Session, ...]
    images: tuple[str, ...]

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
        """The environment, with the commits of all its sessions."""
        commits = dict.fromkeys(session.commit for session in self.sessions)
        return {**self.environment, "commit": ", ".join(map(str, commits)) if len(commits) > 1 else next(iter(commits))}

    @property
    def own_name(self) -> str:
        """Its name, where that says more than the experiment and the preset; else empty."""
        experiment, preset = self.result.experiment, self.result.preset
        return "" if self.name in (experiment, preset, f"{experiment}-{preset}") else self.name

    @property
    def checks(self) -> list[tuple[str, Check]]:
        """Those of theory first, each with its anchor."""
        ordered = theory_first(self.result.checks)
        return [(f"check-{place}-{self.anchor}", check) for place, check in enumerate(ordered, 1)]


def read(folders: Sequence[Path]) -> list[Finished]:
    runs: list[Finished] = []
    for folder in folders:
        runs.append(_read(Path(folder), {run.anchor for run in runs}))
    return [replace(run, name=_set_apart(run, runs)) for run in runs]


def _set_apart(run: Finished, runs: Sequence[Finished]) -> str:
    """As many of the last parts of its path as no other run of its experiment has."""
    own = run.folder.parts
    others = {other.folder.parts for other in runs if other.result.experiment == run.result.experiment} - {own}
    depth = next(depth for depth in range(1, len(own) + 1) if all(own[-depth:] != one[-depth:] for one in others))
    return "/".join(own[-depth:])


def _read(folder: Path, taken: set[str]) -> Finished:
    finished = "Give the folder of a finished run, as `flipout run NAME` leaves it."
    if not folder.is_dir():
        wrong = "is a file, and a run is a folder" if folder.exists() else "does not exist"
        raise DataError(f"{folder} {wrong}. {finished}")
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder} is not a run: there is no config.json in it. {finished}")
    config = _object(folder / "config.json")
    name = config.get("experiment", "NAME")
    if not (folder / "result.json").is_file():
        raise DataError(
            f"{folder} is unfinished: there is no result.json in it. Finish it with the command that started it and "
            f"--resume (`flipout run {name} ... --resume`), or leave it out of the report."
        )
    result, environment = _result(folder, config), _object(folder / "environment.json")
    try:
        sessions = _sessions(environment)
    except Mismatch as error:
        raise DataError(
            f"{folder / 'environment.json'} does not say what the run cost ({error}). Expected a device, and sessions "
            f"with started and seconds. Run it again: `flipout run {name} ...`."
        ) from error
    images = tuple(_image(folder, f"{figure.name}.svg") for figure in result.figures)
    facts = {key: value for key, value in environment.items() if key != "sessions"}
    return Finished(folder.resolve(), "", _anchor(result.experiment, taken), result, config, facts, sessions, images)


def _result(folder: Path, config: Mapping[str, Any]) -> Result:
    try:
        shown = checked(config.get("shown"), tuple[str, ...] | None, "shown")
    except Mismatch as error:
        raise _not_written(folder / "config.json", error) from error
    return Result.read(folder / "result.json", shown or ())


def _sessions(environment: Mapping[str, Any]) -> tuple[Session, ...]:
    """Those of a run; one that does not name its commit has that of the environment."""
    for field, kind in (("device", str), ("commit", str | None)):
        checked(environment.get(field), kind, field)
    listed = checked(environment.get("sessions"), tuple[Mapping[str, Any], ...], "sessions")
    if not listed:
        raise Mismatch("sessions: none; expected at least one")
    full = [{"commit": environment.get("commit"), **one} for one in listed]
    return checked(full, tuple[Session, ...], "sessions")


def _object(path: Path) -> dict[str, Any]:
    try:
        held = load(path)
        if not isinstance(held, dict):
            raise Mismatch(f"a JSON object was expected, and this is a {type(held).__name__}")
        return held
    except (OSError, ValueError) as error:
        raise _not_written(path, error) from error


def _not_written(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path} is not the file that a run writes ({type(error).__name__}: {error}). Give the folder of a finished "
        "run, as `flipout run NAME` leaves it."
    )


def _image(folder: Path, name: str) -> str:
    path = folder / "figures" / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise DataError(f"{path} leads out of the folder of the run. Put the file itself there: a report shows it.")
    try:
        return b64encode(path.read_bytes()).decode()
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}), and result.json names this figure. Draw it anew from "
            f"what the run holds: `flipout report {path.parent.parent} --redraw`."
        ) from error


def _anchor(experiment: str, taken: set[str]) -> str:
    anchor = first = "run-" + re.sub(r"[^a-z0-9]+", "-", experiment.lower()).strip("-")
    copy = 1
    while anchor in taken:
        copy += 1
        anchor = f"{first}-{copy}"
    return anchor
