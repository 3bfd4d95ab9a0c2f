"""An experiment that takes no time, and processes that die at every moment of its run.

`python -m tests.experiments.toy_experiment run toy …` is the command line with this experiment.
"""

import gc
import json
import math
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from flipout.experiments import cli
from flipout.experiments.running.experiment import Config, Experiment, Outcome
from flipout.experiments.running.results import MUST_HOLD, REPORTED, Check
from flipout.experiments.running.runs import Run

DEAD = 137


@dataclass(frozen=True)
class Inner:
    accuracy: float = 0.85


@dataclass(frozen=True)
class ToyConfig(Config):
    size: int = 2
    broken: bool = False
    inner: Inner = field(default_factory=Inner)


@dataclass(frozen=True)
class Drawn:
    """The part of a matplotlib figure that a run uses."""

    numbers: list[float]

    def savefig(self, path: Path, **_: Any) -> None:
        path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg"><!-- {self.numbers} --></svg>')


def work(config: ToyConfig, run: Run) -> Outcome:
    network = run.tensors("network", lambda: _train(run))
    rows = [
        run.piece(f"measure/{i}", lambda i=i: _measure(run, i)) for i in run.progress.track(range(config.size), "β")
    ]
    run.files.write("measurements.json", json.dumps(rows))
    checks = (
        Check(
            "size", "the network is 2 × 3", MUST_HOLD, "weights", network["weight"].numel(), (6, 6), not config.broken
        ),
        Check("end", "nothing is endless [a]", REPORTED, "end", math.inf, (0.0, math.inf), False, "curve"),
    )
    return Outcome("a toy: α ≫ β", {"mean": rows[0]["mean"]}, {"mean": "≈ ½"}, checks)


def draw(config: ToyConfig, run: Run) -> None:
    run.draw("curve", "β against N", Drawn([run.read_piece(f"measure/{i}")["mean"] for i in range(config.size)]))


def _train(run: Run) -> dict[str, torch.Tensor]:
    generator = run.generator("network")
    for step in range(2):
        run.log(step, loss=float(torch.rand((), generator=generator)))
    return {"weight": torch.randn(2, 3, generator=generator), "bias": torch.zeros(2)}


def _measure(run: Run, i: int) -> dict[str, Any]:
    mean = float(torch.rand((), generator=run.generator(f"measure/{i}")))
    run.log(i, mean=mean, endless=math.inf)
    return {"name": "β", "mean": mean, "endless": math.inf}


TOY = Experiment(
    name="toy",
    title="Figure 0: β",
    claim="Everything comes to an end.",
    presets={"smoke": ToyConfig(), "quick": ToyConfig(size=3), "paper": ToyConfig(size=4)},
    costs={"smoke": "nothing", "quick": "nothing", "paper": "nothing"},
    work=work,
    draw=draw,
)


def content(folder: Path) -> dict[str, bytes]:
    """Return the files of a run that say what was found, and not when, where or in how many steps."""
    apart = ("environment.json", "checksums.jsonl", ".lock")
    files = (path for path in folder.rglob("*") if path.is_file() and "tensorboard" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name not in apart}


def sweeps(roots: dict[str, str]) -> None:
    """Print how runs went that died before a change of a file, and amid one."""
    gc.collect()
    gc.freeze()  # or a child's collector would touch, and so copy, all that was imported
    print(json.dumps({death: sweep(root, torn=death == "amid") for death, root in roots.items()}))


def sweep(root: str, torn: bool) -> list[dict[str, Any]]:
    """Die at the first, second, third, … change of a file, resume until the end, and return how each run went."""
    TOY.run(ToyConfig(), Path(root, "whole"), preset="smoke")
    whole, told = content(Path(root, "whole")), []
    for moment in range(1000):
        folder, statuses, pieces = Path(root, str(moment)), [], 0
        while not statuses or statuses[-1] == DEAD:  # each of the next processes lives a little longer
            statuses.append(_child(moment + 20 * len(statuses), folder, torn))
            if len(statuses) == 1:
                pieces = len([path for path in folder.glob("pieces/*") if path.suffix != ".new"])
        sessions = json.loads((folder / "environment.json").read_text())["sessions"]
        told.append(
            {
                "statuses": statuses,
                "pieces": pieces,
                "sessions": len(sessions),
                "differs": [name for name in whole | content(folder) if whole.get(name) != content(folder).get(name)],
            }
        )
        if len(statuses) == 1:
            return told
    raise AssertionError("the run has no end")


def _child(moment: int, folder: Path, torn: bool) -> int:
    """Return the status of a process that resumes the run and dies just before change number `moment` of a file."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        sys.addaudithook(_Death(moment, folder, torn))
        TOY.run(ToyConfig(), folder, preset="smoke", resume=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


class _Death:
    """An audit hook that ends the process. With `torn`, the file being written is left incomplete."""

    def __init__(self, moment: int, folder: Path, torn: bool) -> None:
        self.left, self.folder, self.torn = moment, str(folder), torn

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        changes: dict[str, Callable[[], bool]] = {
            "open": lambda: isinstance(arguments[1], str) and arguments[1][0] in "wax",
            "os.mkdir": lambda: True,
            "os.rename": lambda: True,
        }
        if event not in changes or not str(arguments[0]).startswith(self.folder) or not changes[event]():
            return
        self.left -= 1
        if self.left >= 0:
            return
        self.left = 1000
        if self.torn and event == "os.rename":
            os.truncate(arguments[0], os.path.getsize(arguments[0]) // 2)
        if self.torn and event == "open" and arguments[1][0] == "a":
            with open(arguments[0], "a") as file:
                file.write('{"piece": "network", "st')
        os._exit(DEAD)


if __name__ == "__main__":
    cli.EXPERIMENTS["toy"] = TOY
    sys.exit(cli.main())
