"""The folder of a finished run, read for the report."""

import json
import math
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import DataError
from .catalogue import EXPERIMENTS
from .page_values import theory_first
from .results import Check, Result


@dataclass(frozen=True)
class Finished:
    """The content of one folder, whose `name` sets it apart. `images` are the figures of the result in base64."""

    folder: Path
    name: str
    anchor: str
    result: Result
    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    seconds: float
    started: datetime
    images: tuple[str, ...]

    @property
    def device(self) -> str:
        return self.environment["device"]

    @property
    def facts(self) -> dict[str, Any]:
        """The environment, with the commits of all its sessions."""
        one = {key: value for key, value in self.environment.items() if key != "sessions"}
        last = one.get("commit")
        commits = dict.fromkeys(session.get("commit", last) for session in self.environment["sessions"])
        return {**one, "commit": ", ".join(map(str, commits)) if len(commits) > 1 else next(iter(commits), last)}

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
    result, environment = Result.read(folder / "result.json"), _object(folder / "environment.json")
    try:
        _, sessions = environment["device"], environment["sessions"]
        started = datetime.fromisoformat(sessions[0]["started"])
        seconds = math.fsum(session["seconds"] for session in sessions)
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"{folder / 'environment.json'} does not say what the run cost ({type(error).__name__}: {error}). Expected "
            f"a device, and sessions with started and seconds. Run it again: `flipout run {name} ...`."
        ) from error
    if result.experiment in EXPERIMENTS:
        result = result.linked(EXPERIMENTS[result.experiment].seen, config)  # older files do not say
    images = tuple(_image(folder / "figures" / f"{figure.name}.svg") for figure in result.figures)
    anchor = _anchor(result.experiment, taken)
    return Finished(folder.resolve(), "", anchor, result, config, environment, seconds, started, images)


def _object(path: Path) -> dict[str, Any]:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(held, dict):
            raise TypeError(f"a JSON object was expected, and this is a {type(held).__name__}")
        return held
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"{path} is not the file that a run writes ({type(error).__name__}: {error}). Give the folder of a "
            "finished run, as `flipout run NAME` leaves it."
        ) from error


def _image(path: Path) -> str:
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
