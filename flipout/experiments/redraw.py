"""The figures of a finished run, drawn anew from what its folder holds."""

import json
from dataclasses import asdict
from pathlib import Path

import torch

from ..errors import DataError
from ..variance.records import write_whole
from .catalogue import EXPERIMENTS
from .experiment import settled
from .progress import Progress
from .results import to_json
from .runs import CONFIG, RESULT, Run, alone


def redraw(folder: Path) -> None:
    """Nothing else is made or changed, but for the list of figures in the result; no device is asked for."""
    try:
        held, result = (json.loads((folder / name).read_text(encoding="utf-8")) for name in (CONFIG, RESULT))
        experiment = EXPERIMENTS[held["experiment"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{folder} is not a finished run of an experiment here ({type(error).__name__}: {error}), so its figures "
            "cannot be drawn anew. Give the folder of one, as `flipout run NAME` leaves it."
        ) from error
    with alone(folder):
        run = Run(folder, held["seed"], torch.device("cpu"), Progress())
        experiment.draw(settled(experiment.config(held["preset"]), held), run)
        figures = [asdict(figure) for figure in run.figures]
        if figures != result["figures"]:
            write_whole(folder / RESULT, to_json({**result, "figures": figures}))
