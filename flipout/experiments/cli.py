"""The command line: flipout list | run | report | generate | doctor."""

import io
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import tyro
from rich.console import Console
from rich.table import Table

import flipout
from flipout.errors import FlipoutError, InvalidArgument

from .doctor import doctor
from .language.generate import Writing, texts
from .registry import EXPERIMENTS
from .report.page import write_page
from .report.redraw import redraw
from .running.experiment import Config, Preset
from .running.results import MUST_HOLD, REPORTED, TOO_SMALL, Result
from .running.runs import CONFIG, RESULT

USAGE = """usage: flipout COMMAND

  flipout list                       list the experiments and what they cost
  flipout run NAME --preset quick    run one; `flipout run NAME --help` shows its settings
  flipout report RUN...              write one self-contained HTML page about finished runs
  flipout generate RUN --row ROW     write text with a language model of a run
  flipout doctor                     show versions, devices, kernels in use, and data found
"""
C = TypeVar("C", bound=Config)


@dataclass(frozen=True)
class Options(Generic[C]):
    config: Annotated[C, tyro.conf.arg(name="")]
    preset: Preset = "quick"
    """smoke: seconds; quick: embedded data, minutes on two CPU cores; paper: the setting of the paper."""
    out: Path | None = None
    """Folder of the run; runs/NAME-PRESET unless given."""
    resume: bool = False
    """Continue the run in that folder, or start it if there is none."""
    tensorboard: bool = False
    """Log the metrics for TensorBoard too, in the folder of the run."""


@dataclass(frozen=True)
class Generate:
    run: tyro.conf.Positional[Path]
    """Folder of a run of ptb-char, ptb-word or ptb-large-batch."""
    row: str
    """Row of the table to write with."""
    writing: Annotated[Writing, tyro.conf.arg(name="")] = field(default_factory=Writing)
    model: int = 0
    """Seed that the row was trained with."""
    draws: int = 2
    """Number of texts under draws of the weight noise, after the text of the mean weights."""


@dataclass(frozen=True)
class Report:
    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished runs."""
    out: Path = Path("report.html")
    """Page to write."""
    redraw: bool = False
    """Draw the figures again first, from the files in the folders. Nothing is run."""


def main(arguments: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without ✓ must not stop a run
    command, *rest = [*(sys.argv[1:] if arguments is None else arguments), ""]
    rest = rest[:-1]
    commands = {"list": list_experiments, "run": run, "report": report, "generate": generate, "doctor": doctor}
    if command == "--version":
        print(f"flipout {flipout.__version__}")
        return 0
    if command not in commands:
        wants_help = command in ("", "-h", "--help")
        text = USAGE if wants_help else f"flipout: there is no command {command!r}.\n\n{USAGE}"
        print(text, end="", file=sys.stdout if wants_help else sys.stderr)
        return 0 if wants_help else 2
    try:
        return commands[command](rest)
    except FlipoutError as error:
        print(f"flipout {command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:
        print(
            f"flipout {command}: {error.filename or 'a file'} cannot be read or written ({error.strerror or error}). "
            "Fix that, or choose another folder with --out. What a run has finished is kept: continue with --resume.",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130


def list_experiments(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] not in ("-h", "--help"):
        raise InvalidArgument(f"takes no arguments; {' '.join(arguments)!r} given. Use: flipout list")
    for experiment in EXPERIMENTS.values():
        costs = "; ".join(f"{preset}: {cost}" for preset, cost in experiment.costs.items())
        print(f"{experiment.name}\n    {experiment.title}\n    {costs}")
    return 0


def run(arguments: Sequence[str]) -> int:
    name = arguments[0] if arguments else ""
    if name in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if name not in EXPERIMENTS:
        wrong = f"there is no experiment {name!r}" if name else "no experiment given"
        raise InvalidArgument(f"{wrong}; there are {', '.join(EXPERIMENTS)}. Use: flipout run NAME --preset quick")
    experiment = EXPERIMENTS[name]
    default = experiment.config(_preset(arguments))
    options = tyro.cli(
        Options[type(default)],
        prog=f"flipout run {name}",
        description=f"{experiment.title}. {experiment.claim}",
        default=Options(default, _preset(arguments)),  # pyright: ignore[reportArgumentType]
        args=list(arguments[1:]),
        config=(tyro.conf.AvoidSubcommands,),
    )
    folder = options.out or Path("runs") / f"{name}-{options.preset}"
    try:
        result = experiment.run(
            options.config, folder, preset=options.preset, resume=options.resume, tensorboard=options.tensorboard
        )
    except KeyboardInterrupt:
        command = shlex.join(["flipout", "run", *(word for word in arguments if word != "--resume"), "--resume"])
        print(f"\nStopped. What was finished is in {folder}; continue with:\n  {command}", file=sys.stderr)
        return 130
    show(result, folder)
    return 1 if result.broken else 0


def report(arguments: Sequence[str]) -> int:
    options = tyro.cli(
        Report, prog="flipout report", description="Write one page about finished runs.", args=list(arguments)
    )
    if not options.runs:
        raise InvalidArgument("expected the folder of at least one finished run: flipout report runs/*")
    unfinished = [run for run in options.runs if (run / CONFIG).is_file() and not (run / RESULT).is_file()]
    finished = [run for run in options.runs if run not in unfinished]
    for folder in unfinished if finished else ():
        print(f"{folder} is unfinished, and left out: finish it with --resume.", file=sys.stderr)
    runs = finished or options.runs
    for folder in runs if options.redraw else ():
        redraw(folder)
    write_page(runs, options.out)
    print(f"The report is in {options.out}")
    return 0


def generate(arguments: Sequence[str]) -> int:
    options = tyro.cli(
        Generate, prog="flipout generate", description="Write text with a model of a run.", args=list(arguments)
    )
    written = texts(options.run, options.row, options.model, options.draws, options.writing)
    for weights, text in written.items():
        print(f"--- {options.row}, {weights}\n{text}\n")
    if options.draws and len(written) == 1:
        print(f"(Row {options.row} has no weight noise, so there is nothing to draw.)")
    return 0


def show(result: Result, folder: Path) -> None:
    """Print the checks of a result, its numbers beside the paper's, and a summary."""
    table = Table(title=result.title, title_justify="left", box=None, pad_edge=False)
    for head in ("", "claim", "measured", "interval", "kind"):
        table.add_column(head, overflow="fold", justify="right" if head == "measured" else "left")
    for check in sorted(result.checks, key=lambda check: check.kind != MUST_HOLD):
        ends = [] if check.interval is None else ["" if end is None else f"{end:.3g}" for end in check.interval]
        interval = " … ".join(ends).strip()
        kind, mark = check.kind.replace("_", " "), "✓" if check.holds else "✗"
        if not result.can_judge(check):
            kind, mark = f"{kind}, {TOO_SMALL}", "–"
        value = "not finite" if check.value is None else f"{check.value:.4g}"
        table.add_row(mark, check.statement, value, interval, kind)
    console = Console(markup=False, emoji=False, highlight=False)
    console.print(table)
    if result.paper:
        numbers = Table("", "measured", "the paper", box=None, pad_edge=False)
        for name, quoted in result.paper.items():
            values = (result.measured.get(name, "–"), quoted)
            numbers.add_row(name, *(f"{value:.5g}" if isinstance(value, float) else str(value) for value in values))
        console.print(numbers)
    console.print(result.setting, soft_wrap=True)
    counts = [[check.holds for check in result.checks if check.kind == kind] for kind in (MUST_HOLD, REPORTED)]
    must_hold, reported = (f"{sum(holds)} of {len(holds)}" for holds in counts)
    console.print(f"Must hold: {must_hold} do. Reported: {reported} hold. The run is in {folder}", soft_wrap=True)
    for check in result.broken:
        console.print(f"must hold but does not: {check.statement}", style="bold red")


def _preset(arguments: Sequence[str]) -> str:
    """Return the preset, which decides the defaults of all other settings and is therefore read first."""
    preset = "quick"
    for word, following in pairwise([*arguments, ""]):
        if word == "--preset" and following:
            preset = following
        elif word.startswith("--preset="):
            preset = word.partition("=")[2]
    return preset
