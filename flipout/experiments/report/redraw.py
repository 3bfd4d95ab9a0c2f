"""The figures of a finished run, drawn anew from what its folder holds."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from flipout.errors import DataError

from ..registry import EXPERIMENTS
from ..running.atomic import write_atomically
from ..running.checked import checked, load
from ..running.experiment import settled
from ..running.legacy import with_ids
from ..running.progress import Progress
from ..running.results import Result, to_json
from ..running.runs import CONFIG, RESULT, Run, alone


def redraw(folder: Path) -> None:
    """Nothing else is made or changed, but for the list of figures in the result; no device is asked for."""
    try:
        held, result = (load(folder / name) for name in (CONFIG, RESULT))
        checked(with_ids(result, ()), Result)
        checked(held, Mapping[str, Any])
        seed, preset = checked(held.get("seed"), int, "seed"), checked(held.get("preset"), str, "preset")
        experiment = EXPERIMENTS[checked(held.get("experiment"), str, "experiment")]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{folder} is not a finished run of an experiment here ({type(error).__name__}: {error}), so its figures "
            "cannot be drawn anew. Give the folder of one, as `flipout run NAME` leaves it."
        ) from error
    with alone(folder):
        run = Run(folder, seed, torch.device("cpu"), Progress())
        experiment.draw(settled(experiment.config(preset), held), run)
        figures = [asdict(figure) for figure in run.figures]
        if figures != result["figures"]:
            write_atomically(folder / RESULT, to_json({**result, "figures": figures}))
