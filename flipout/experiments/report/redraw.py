"""The figures of a finished run, drawn again from what its folder holds."""

from pathlib import Path

import msgspec
import torch

from flipout.errors import DataError

from ..registry import EXPERIMENTS
from ..running.atomic import write_atomically
from ..running.experiment import config_from
from ..running.folder import locked
from ..running.legacy import with_ids
from ..running.progress import Progress
from ..running.reader import Settings, convert, load
from ..running.results import Result, to_json
from ..running.runs import CONFIG, RESULT, Run


def redraw(folder: Path) -> None:
    """Draw the figures of a run again, on the CPU. Of its other files only the list of figures may change."""
    try:
        config, result = (load(folder / name) for name in (CONFIG, RESULT))
        convert(with_ids(result, ()), Result)
        settings = convert(config, Settings)
        experiment = EXPERIMENTS[settings.experiment]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{folder} is not a finished run of an experiment here ({type(error).__name__}: {error}), so its figures "
            "cannot be drawn again. Give the folder of one, as `flipout run NAME` leaves it."
        ) from error
    with locked(folder):
        run = Run(folder, settings.seed, torch.device("cpu"), Progress())
        experiment.draw(config_from(config, experiment.config(settings.preset)), run)
        figures = msgspec.to_builtins(run.figures)
        if figures != result["figures"]:
            write_atomically(folder / RESULT, to_json({**result, "figures": figures}))
