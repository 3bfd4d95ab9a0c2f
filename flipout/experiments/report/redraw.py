"""The figures of a finished run, drawn again from what its folder holds."""

from pathlib import Path
from typing import Any

import msgspec
import torch

from flipout.errors import DataError

from ..door import SHORT, Mismatch
from ..registry import EXPERIMENTS
from ..running.experiment import config_from, refusing_unchecked
from ..running.files import RunFiles
from ..running.folder import locked
from ..running.progress import RunProgress
from ..running.reader import SavedSettings, convert
from ..running.results import Result, to_json
from ..running.runs import CONFIG, RESULT, Run


def redraw_figures(folder: Path) -> None:
    """Draw the figures of a run again, on the CPU. Of its other files only the list of figures may change."""
    try:
        files = RunFiles(folder)
        config, result = (_load(files, name) for name in (CONFIG, RESULT))
        Result.of(result)
        settings = convert(config, SavedSettings)
        if settings.experiment not in EXPERIMENTS:
            raise Mismatch(
                f"{CONFIG}: experiment: {SHORT.repr(settings.experiment)} found; expected one of this version"
            )
        experiment = EXPERIMENTS[settings.experiment]
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{folder} is not a finished run of an experiment here ({type(error).__name__}: {error}), so its figures "
            "cannot be drawn again. Give the folder of one, as `flipout run NAME` leaves it."
        ) from error
    with locked(folder):
        run = Run(folder, settings.seed, torch.device("cpu"), RunProgress())
        run.files.tidy()
        with refusing_unchecked(run):
            experiment.draw(config_from(config, experiment.config(settings.preset)), run)
        figures = msgspec.to_builtins(run.figures)
        if figures != result["figures"]:
            run.files.write(RESULT, to_json({**result, "figures": figures}))


def _load(files: RunFiles, name: str) -> Any:
    try:
        return files.load(name)
    except Mismatch as error:
        raise Mismatch(f"{name}: {error}") from error
