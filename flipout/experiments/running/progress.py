"""How far a run is: bars with the time left on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO, TypeVar

Item = TypeVar("Item")
_SILENT = 1.0  # seconds before anything is shown
_BETWEEN = 5.0  # seconds between two plain lines


class Progress:
    """Show the progress of loops, which may nest.

    Example:
        >>> with Progress() as progress:
        ...     for item in progress.track(items, "train"):
        ...         ...
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.bars: Any = None
        self.depth = 0  # loops that are running

    def __enter__(self) -> "Progress":
        if self.stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self.bars = Bars(*columns, console=Console(file=self.stream))
            self.bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bars is not None:
            self.bars.stop()
            self.bars = None

    def say(self, line: str) -> None:
        if self.bars is not None:
            self.bars.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=self.stream, flush=True)

    def track(
        self, items: Iterable[Item], title: str, weight: Callable[[Item], float] = lambda _: 1.0, most: bool = False
    ) -> Iterator[Item]:
        """Yield the items, and show how far the loop is.

        Args:
            items: What to loop over.
            title: What is done.
            weight: The share of the time that an item is expected to take.
            most: The loop may end long before its last item, so that no end can be foretold.
        """
        listed = list(items)
        total = sum(map(weight, listed))
        bars = self.bars
        task = None if bars is None else bars.add_task(title, total=None if most else total)
        started = spoke = time.monotonic()
        done = 0.0
        self.depth += 1
        try:
            for item in listed:
                yield item
                done += weight(item)
                now = time.monotonic()
                if bars is not None:
                    bars.update(task, completed=done)
                elif now - started > _SILENT and (now - spoke > _BETWEEN or done >= total):
                    spoke = now
                    left = (now - started) * (total - done) / max(done, 1e-9)
                    share = "" if most else f"{done / max(total, 1e-9):4.0%}, "
                    rest = "" if most else f", {_clock(left)} left"
                    self.say(f"{title}: {share}{_clock(now - started)} passed{rest}")
        finally:
            self.depth -= 1
            if bars is not None:
                if self.depth or time.monotonic() - started < _SILENT:
                    bars.remove_task(task)  # makes room for the next bar
                elif most:
                    bars.update(task, total=1, completed=1)
                else:
                    bars.stop_task(task)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
