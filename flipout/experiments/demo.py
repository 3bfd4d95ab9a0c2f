"""flipout demo: the paper's first claim on a small network, and what to look at and to try next."""

import os
import shlex
from pathlib import Path

import torch

from .registry import EXPERIMENTS
from .report.page import write_page
from .running.memory import keep_large_blocks
from .running.results import DEMO, Result
from .variance.curves import CurvesConfig

NAME, PRESET = "variance-fc", "quick"
PAGE = "report.html"
_RATIO = "below-flipout"  # the check whose value is the variance of flipout over that of shared noise


def demo_run(folder: Path) -> Result:
    """Run the demo in a folder, or finish it there, and write its page."""
    if "OMP_NUM_THREADS" not in os.environ:
        # The tensors are small: a second thread waits more than it works, above all if other programs run.
        torch.set_num_threads(1)
    keep_large_blocks()
    experiment = EXPERIMENTS[NAME]
    result = experiment.run(experiment.config(PRESET), folder, preset=DEMO, resume=True)
    write_page([folder], folder / PAGE)
    return result


def closing(result: Result, folder: Path) -> str:
    """Return what was seen, where to look, and what to try."""
    ratio = next(check for check in result.checks if check.id == _RATIO).value or float("nan")
    config = EXPERIMENTS[NAME].config(PRESET)
    assert isinstance(config, CurvesConfig)
    return "\n".join(
        [
            f"In batches of {max(config.batch_sizes)} the gradient under flipout has 1/{1 / ratio:.0f} of the variance "
            "that it has if the whole batch shares one perturbation.",
            "",
            "Open the page and look at the figure. The dotted curve, shared noise, levels off; flipout keeps falling:",
            f"  {shlex.quote(str(folder / PAGE))}",
            "",
            "Try next:",
            "  flipout run uncertainty --preset quick    where a Bayesian net is unsure",
            "  flipout run es-discrete --preset quick    training on accuracy itself",
            "  flipout list                              every table and figure",
        ]
    )
