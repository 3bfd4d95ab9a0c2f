"""How far a run is: bars with the time left on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO, TypeVar

from .pace import Pace

Item = TypeVar("Item")
_SILENT = 1.0  # seconds before anything is shown
_BETWEEN = 5.0  # seconds between two plain lines


@dataclass
class _Loop:
    """A loop that is running."""

    title: str
    pace: Pace[Any]
    task: Any  # its bar, if there are bars
    is_open: bool  # it may end long before its last item
    started: float
    began: float  # when the item that is under way began


class RunProgress:
    """Show the progress of loops, which may nest.

    Example:
        >>> with RunProgress() as progress:
        ...     for item in progress.track(items, "train"):
        ...         ...
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.bars: Any = None
        self.loops: list[_Loop] = []  # from the outermost to the innermost
        self.spoke = 0.0  # when the last plain line was printed, or the outermost loop began

    def __enter__(self) -> "RunProgress":
        if self.stream.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),
            )
            self.bars = Bars(*columns, console=Console(file=self.stream))
            self.bars.start()
        return self

    def __exit__(self, error: object = None, *_: object) -> None:
        if self.bars is not None:
            if error is not None:  # of a run that was stopped no bar stays behind
                for task in self.bars.task_ids:
                    self.bars.remove_task(task)
            self.bars.stop()
            self.bars = None

    def say(self, line: str) -> None:
        if self.bars is not None:
            self.bars.console.print(line, markup=False, highlight=False)
        else:
            print(line, file=self.stream, flush=True)

    def track(
        self,
        items: Iterable[Item],
        title: str,
        weight: Callable[[Item], float] = lambda _: 1.0,
        *,
        kind: Callable[[Item], Hashable] = lambda _: None,
        most: bool = False,
    ) -> Iterator[Item]:
        """Yield the items, and show how far the loop is.

        Args:
            items: What to loop over.
            title: What is done.
            weight: The share of the time that an item is expected to take, among items of its kind.
            kind: Items of different kinds may have different speeds, which are learned from the first of each.
            most: The loop may end long before its last item, so that no end can be predicted.
        """
        listed = list(items)
        pace = Pace(listed, weight, kind)
        task = None if self.bars is None else self.bars.add_task(title, total=None if most else 1.0, left="")
        started = time.monotonic()
        loop = _Loop(title, pace, task, most, started, started)
        if not self.loops:
            self.spoke = started
        self.loops.append(loop)
        try:
            for item in listed:
                yield item
                now = time.monotonic()
                pace.done(now - loop.began)
                loop.began = now
                if self.bars is None:
                    self._say_how_far(loop, now)
                    continue
                left = "" if most or not pace.waiting else f"{_clock(pace.left)} left"
                self.bars.update(task, completed=pace.share, left=left)
                for outer, share, rest in self._outer_estimates(loop, now):
                    self.bars.update(outer.task, completed=share, left=f"{_clock(rest)} left")
        finally:
            self.loops.remove(loop)
            if self.bars is not None:
                if self.loops or time.monotonic() - started < _SILENT:
                    self.bars.remove_task(task)  # makes room for the next bar
                elif most:
                    self.bars.update(task, total=1, completed=1)
                else:
                    self.bars.stop_task(task)

    def _say_how_far(self, loop: _Loop, now: float) -> None:
        """Print a line now and then: how far the outermost loop is, and in parentheses where it is."""
        outermost = self.loops[0]
        ends = loop is outermost and not loop.pace.waiting
        if now - outermost.started <= _SILENT or (now - self.spoke <= _BETWEEN and not ends):
            return
        self.spoke = now
        estimates = [(share, left) for outer, share, left in self._outer_estimates(loop, now) if outer is outermost]
        line = _how_far(outermost, now, estimates[0] if estimates else None)
        self.say(line if loop is outermost else f"{line} ({loop.title})")

    def _outer_estimates(self, inner: _Loop, now: float) -> Iterator[tuple[_Loop, float, float]]:
        """Yield the loops around this one, with share and seconds left as it knows them.

        Their own items may take minutes.
        """
        if inner.is_open:
            return
        left = inner.pace.left
        for loop in reversed(self.loops[: self.loops.index(inner)]):
            if loop.is_open:
                return
            elapsed = now - loop.began
            left = loop.pace.left_within(elapsed, left)
            passed = loop.pace.passed + elapsed
            share = passed / (passed + left) if passed + left else 0.0
            yield loop, share, left


def _how_far(loop: _Loop, now: float, estimate: tuple[float, float] | None) -> str:
    """Return a line about a loop. Without an estimate it is made from the finished items, if there are any."""
    passed = f"{_clock(now - loop.started)} passed"
    if estimate is None and loop.pace.passed:
        estimate = loop.pace.share, loop.pace.left
    if loop.is_open or estimate is None:
        return f"{loop.title}: {passed}"
    share, left = estimate
    return f"{loop.title}: {share:4.0%}, {passed}, {_clock(left)} left"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
