"""The command `flipout`, up to the moment when PyTorch is needed.

Importing PyTorch takes seconds. This package imports neither PyTorch nor `flipout`. So help and the list of experiments
appear at once and need no extra, and every other command says at once that it has started.
"""

import json
import os
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from . import streams
from .early import HELP, usage_error, wants_usage
from .streams import forgive_encodings as forgive_encodings

USAGE = """usage: flipout COMMAND

  flipout demo                       measure figure 1 of the paper, on a small
                                     network (two minutes)
  flipout list                       list the experiments and what they cost
  flipout run NAME --preset quick    run one; add --help to see its settings
  flipout watch RUN                  show the curves of a run while it runs
  flipout report RUN...              write an HTML page about finished runs
  flipout generate RUN --row ROW     write text with a language model of a run
  flipout doctor                     show versions, devices, kernels and data
  flipout --version                  show the version of flipout
"""
NEXT = "Run one with `flipout run NAME --preset quick`."
CATALOGUE = Path(__file__).with_name("catalogue.json")


def run() -> int:
    """Run the command in `sys.argv`, and return its exit status."""
    try:
        streams.prepare_streams()
        status = _run(sys.argv[1:])
        lost = streams.flush()
    except KeyboardInterrupt:
        status, lost = 130, streams.flush()
    except OSError as error:
        status, lost = 2, streams.flush() or error
    finally:  # nothing is left to stop; a late Ctrl-C would print a traceback of Python's own way out
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    if isinstance(lost, BrokenPipeError):  # the reader of the output has left: `flipout list | head -1`
        return 0
    if lost is not None:
        print(f"flipout: the output cannot be written ({lost.strerror or lost}).", file=sys.stderr)
        return 2
    return status


def listing(catalogue: Sequence[Mapping[str, Any]], width: int) -> str:
    """Return the experiments with titles and costs, wrapped at words."""
    lines = []
    for entry in catalogue:
        costs = "; ".join(f"{preset}: {cost}" for preset, cost in entry["costs"].items())
        lines += [entry["name"], *_indented(entry["title"], width), *_indented(costs, width)]
    return "\n".join([*lines, "", NEXT])


def read_catalogue() -> list[dict[str, Any]]:
    """Return name, title and costs of every experiment. A test compares the file with the registry."""
    return json.loads(CATALOGUE.read_text(encoding="utf-8"))


def columns() -> int:
    """Return the width of the terminal, at most 120."""
    return min(shutil.get_terminal_size().columns, 120)


def wrapped(text: str, stream: TextIO) -> str:
    """Return text for a terminal, wrapped at words. Elsewhere, and for indented commands, lines stay whole."""
    if not stream.isatty():
        return text
    lines = (line if line.startswith(" ") else _filled(line) for line in text.split("\n"))
    return "\n".join(lines)


def _run(words: list[str]) -> int:
    if wants_usage(words):
        print(USAGE, end="")
        return 0
    if words == ["--version"]:
        print(f"flipout {_version()}")
        return 0
    if said := usage_error(words, [entry["name"] for entry in read_catalogue()]):
        print(wrapped(said, sys.stderr), file=sys.stderr)
        return 2
    if words == ["list"]:
        print(listing(read_catalogue(), columns()))
        return 0
    if not set(HELP) & set(words):
        name = f" {words[1]}" if words[0] == "run" else ""
        print(f"flipout {words[0]}{name}: loading PyTorch", file=sys.stderr, flush=True)
    if not _library_loads():
        return 2
    if words == ["doctor"]:  # works without the packages that the other commands need
        from flipout.experiments.doctor import diagnose

        return diagnose()
    try:
        from flipout.experiments.cli import main
    except ImportError as error:
        said = f"flipout: the experiments need more packages ({error}): pip install 'flipout[experiments]'"
        print(wrapped(said, sys.stderr), file=sys.stderr)
        return 2
    return main(words)


def _library_loads() -> bool:
    """Import the library, or say what was found instead. Ctrl-C meanwhile ends the process: nothing has begun."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # a process in the background may ignore Ctrl-C
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        import flipout  # noqa: F401
    except (ImportError, OSError, AttributeError) as error:
        print(f"flipout: the package cannot be imported here ({error}).", file=sys.stderr)
        print(
            f"Found {', '.join(_found())}. flipout is tested with torch 2.11 on a GPU and 2.13 on a CPU.",
            file=sys.stderr,
        )
        return False
    finally:
        signal.signal(signal.SIGINT, before)
    return True


def _found() -> list[str]:
    found = [f"Python {sys.version.split()[0]}"]
    for package in ("torch", "numpy"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"no {package}")
    return found


def _indented(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def _filled(line: str) -> str:
    return textwrap.fill(line, columns(), break_long_words=False, break_on_hyphens=False)


def _version() -> str:
    """Return the version that stands in the package, which is found and not imported."""
    spec = find_spec("flipout")
    text = "" if spec is None or spec.origin is None else Path(spec.origin).read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return found[1] if found else "of unknown version"
