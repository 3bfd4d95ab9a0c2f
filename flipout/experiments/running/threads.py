"""How many threads a run on a CPU uses.

Where other programs keep the cores busy, the threads of a small operation wait for each other: an update of
`es-discrete --preset smoke` took 370 ms with two threads and 10 ms with one, with a load of 17 on two cores.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ..door import Mismatch, read_plain

VARIABLE = "OMP_NUM_THREADS"


@contextmanager
def chosen_threads(resumed: Path | None, say: Callable[[str], None]) -> Iterator[None]:
    """Use one thread for each core that is free, and in a resumed run as many as it began with.

    The number decides the order of sums, so that the last bits of results depend on it. Nothing changes if
    OMP_NUM_THREADS is set.

    Args:
        resumed: The folder of the run, if it goes on.
        say: Called with a sentence, if the number is not torch's own choice.
    """
    before = torch.get_num_threads()
    threads, reason = _choice(resumed)
    if threads is None or threads == before:
        yield
        return
    say(f"{reason}: this run uses {threads} {'thread' if threads == 1 else 'threads'}. {VARIABLE} sets another number.")
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def free_threads() -> int | None:
    """Return how many cores are left free, at least 1. None if it makes no difference, or the user chose."""
    if VARIABLE in os.environ or not hasattr(os, "getloadavg"):
        return None
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    if load < cores / 2 or torch.get_num_threads() == 1:
        return None
    return max(1, round(cores - load))


def busy() -> str:
    """Return how busy the cores are, in words."""
    return f"the cores are busy (load {os.getloadavg()[0]:.1f} on {os.cpu_count() or 1})"


def _choice(resumed: Path | None) -> tuple[int | None, str]:
    if VARIABLE in os.environ:
        return None, ""
    if resumed is not None and (before := _before(resumed)):
        return before, "it goes on as it began"
    threads = free_threads()
    return threads, busy() if threads else ""


def _before(folder: Path) -> int | None:
    """Return the threads of the sessions before, if the folder holds a run that says so."""
    # Not above: `flipout doctor` asks this file for `busy`, and works where msgspec is not installed.
    from .reader import decode
    from .runs import ENVIRONMENT

    try:
        content = decode(read_plain(folder / ENVIRONMENT))
    except (OSError, Mismatch):  # there is none, or the run itself will refuse it
        return None
    threads = content.get("threads") if isinstance(content, dict) else None
    return threads if isinstance(threads, int) and 0 < threads <= 1024 else None
