"""The command line: flipout demo | list | run | watch | report | generate | doctor."""

import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import tyro

import flipout
from flipout.errors import FlipoutError, InvalidArgument
from flipout_command import USAGE, columns, forgive_encodings, listing, read_catalogue, wrapped

from .demo import closing, demo_run
from .doctor import diagnose
from .door import in_one_line
from .language.generate import Writing, texts
from .live.server import LiveServer
from .registry import EXPERIMENTS
from .report.page import write_page
from .report.redraw import redraw_figures
from .running.environment import device_of
from .running.experiment import Config, Preset
from .running.memory import keep_large_blocks
from .running.runs import CONFIG, RESULT
from .running.threads import chosen_threads
from .terminal import show

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
class Demo:
    out: Path = Path("runs/demo")
    """Folder of the run. Resumes a demo that was stopped there."""


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
class ReportOptions:
    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished runs."""
    out: Path = Path("report.html")
    """Page to write."""
    redraw: bool = False
    """Draw the figures again first, from the files in the folders. Nothing is run."""


@dataclass(frozen=True)
class Watch:
    run: tyro.conf.Positional[Path]
    """Folder of a run, finished or not."""
    port: int = 0
    """Port of the page on this machine; any that is free unless given."""


def main(arguments: Sequence[str] | None = None) -> int:
    forgive_encodings()
    command, *rest = [*(sys.argv[1:] if arguments is None else arguments), ""]
    rest = rest[:-1]
    commands = {
        "demo": run_demo,
        "list": list_experiments,
        "run": run,
        "watch": watch,
        "report": report,
        "generate": generate,
        "doctor": diagnose,
    }
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
        _complain(in_one_line(f"flipout {command}: {error}"))
        return 2
    except BrokenPipeError:
        raise
    except OSError as error:
        _complain(
            in_one_line(
                f"flipout {command}: {error.filename or 'a file'} cannot be read or written "
                f"({error.strerror or error}). Fix that, or choose another folder with --out. What a run has finished "
                "is kept: continue with --resume."
            )
        )
        return 2
    except KeyboardInterrupt:
        return 130


def list_experiments(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] not in ("-h", "--help"):
        raise InvalidArgument(f"takes no arguments; {' '.join(arguments)!r} given. Use: flipout list")
    print(listing(read_catalogue(), columns()))
    return 0


def run_demo(arguments: Sequence[str]) -> int:
    options = tyro.cli(
        Demo, prog="flipout demo", description="Measure figure 1 of the paper on a small network.", args=list(arguments)
    )
    try:
        result = demo_run(options.out)
    except KeyboardInterrupt:
        _stopped(options.out, ["demo", *arguments])
        return 130
    show(result, options.out, has_page=True)
    print(wrapped(f"\n{closing(result, options.out)}", sys.stdout))
    return 1 if result.broken else 0


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
    resumed = folder if options.resume else None
    is_on_cpu = device_of(options.config.device).type == "cpu"
    if is_on_cpu:
        keep_large_blocks()
    try:
        with chosen_threads(resumed, lambda said: _complain(f"flipout run: {said}")) if is_on_cpu else nullcontext():
            result = experiment.run(
                options.config, folder, preset=options.preset, resume=options.resume, tensorboard=options.tensorboard
            )
    except KeyboardInterrupt:
        _stopped(folder, ["run", *(word for word in arguments if word != "--resume"), "--resume"])
        return 130
    show(result, folder)
    return 1 if result.broken else 0


def watch(arguments: Sequence[str]) -> int:
    options = tyro.cli(
        Watch, prog="flipout watch", description="Show the curves of a run while it runs.", args=list(arguments)
    )
    with LiveServer(options.run, options.port) as server:
        print(f"Watch {options.run} at {server.address}\nCtrl-C stops the page; the run continues.", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def report(arguments: Sequence[str]) -> int:
    options = tyro.cli(
        ReportOptions, prog="flipout report", description="Write one page about finished runs.", args=list(arguments)
    )
    if not options.runs:
        raise InvalidArgument("expected the folder of at least one finished run: flipout report runs/*")
    unfinished = [run for run in options.runs if (run / CONFIG).is_file() and not (run / RESULT).is_file()]
    finished = [run for run in options.runs if run not in unfinished]
    for folder in unfinished if finished else ():
        _complain(in_one_line(f"{folder} is unfinished, and left out: finish it with --resume."))
    runs = finished or options.runs
    for folder in runs if options.redraw else ():
        redraw_figures(folder)
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


def _stopped(folder: Path, command: Sequence[str]) -> None:
    _complain(f"\nStopped. What was finished is in {folder}; continue with:\n  {shlex.join(['flipout', *command])}")


def _complain(text: str) -> None:
    print(wrapped(text, sys.stderr), file=sys.stderr)


def _preset(arguments: Sequence[str]) -> str:
    """Return the preset, which decides the defaults of all other settings and is therefore read first."""
    preset = "quick"
    for word, following in pairwise([*arguments, ""]):
        if word == "--preset" and following:
            preset = following
        elif word.startswith("--preset="):
            preset = word.partition("=")[2]
    return preset
