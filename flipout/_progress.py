"""How far a loop has come: a bar of tqdm in a terminal or a notebook, else a line now and then."""

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from torch import Tensor

from ._reprs import short_repr

Step = TypeVar("Step")

_BETWEEN_LINES, _BETWEEN_BARS = 1.0, 0.1  # seconds


class Shown:
    """Progress through a number of steps, shown while the context is open.

    Args:
        total: Number of steps, or None if it is not known.
        what: Name of the steps.
        unit: Name of one step.
    """

    def __init__(self, total: int | None, what: str, unit: str = "steps") -> None:
        self.total, self.what, self.unit, self.done = total, what, unit, 0
        make = _bar_class()
        self._bar = None if make is None else make(total=total, desc=what, unit=f" {unit}", dynamic_ncols=True)
        self._between = _BETWEEN_LINES if self._bar is None else _BETWEEN_BARS
        self._started = self._spoke = time.monotonic()
        self._unsaid: tuple[Callable[[], str], Callable[[], str] | None] | None = None

    def __enter__(self) -> "Shown":
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._unsaid is not None and error is None:
            self._show(*self._unsaid)
        if self._bar is not None:
            self._bar.close()

    def advance(self, steps: int = 1, note: Callable[[], str] = str, line: Callable[[], str] | None = None) -> None:
        """Count steps, and show where the loop is: not too often, and in the end always.

        Args:
            steps: Number of steps done since the last call.
            note: Makes the words beside the bar. It is called only if they are shown, since it may wait for a device.
            line: Makes the words of a printed line, if there is no bar. By default they are the count and the note.
        """
        self.done, self._unsaid = self.done + steps, (note, line)
        if time.monotonic() - self._spoke >= self._between:
            self._show(note, line)

    def _show(self, note: Callable[[], str], line: Callable[[], str] | None) -> None:
        self._spoke, self._unsaid = time.monotonic(), None
        if self._bar is not None:
            self._bar.set_postfix_str(note(), refresh=False)
            self._bar.update(self.done - self._bar.n)
            self._bar.refresh()
            return
        words = [self._count(), note()] if line is None else [line()]
        if self.total is not None:
            words.append(f"{(self._spoke - self._started) / self.done * (self.total - self.done):.0f} s left")
        print(", ".join(filter(None, words)), flush=True)

    def _count(self) -> str:
        of_all = "" if self.total is None else f" of {self.total}"
        return f"{self.what and f'{self.what}: '}{self.done}{of_all} {self.unit}"


class Progress(Generic[Step]):
    """A loop that shows how far it has come. `flipout.progress` makes it."""

    def __init__(self, steps: Iterable[Step], what: str) -> None:
        self._steps, self._what = steps, what
        self._values: dict[str, Any] = {}

    def __iter__(self) -> Iterator[Step]:
        with Shown(len(self), self._what) if hasattr(self._steps, "__len__") else Shown(None, self._what) as shown:
            for step in self._steps:
                yield step
                shown.advance(note=self._noted)

    def __len__(self) -> int:
        return len(self._steps)  # pyright: ignore[reportArgumentType]

    def note(self, **values: Any) -> None:
        """Show values beside the progress. A tensor is read only when it is shown.

        Args:
            **values: Names and values, such as the loss, a tensor of shape ().

        Example:
            >>> steps.note(loss=terms.loss)
        """
        self._values = {name: v.detach() if isinstance(v, Tensor) else v for name, v in values.items()}

    def _noted(self) -> str:
        return ", ".join(f"{name} {short_repr(value)}" for name, value in self._values.items())


def progress(steps: Iterable[Step], what: str = "") -> Progress[Step]:
    """Show how far a loop has come: a bar in a terminal or a notebook, else a line now and then.

    The bar needs tqdm: `pip install 'flipout[progress]'`. Without it, and where output goes to a file, at most one line
    a second is printed.

    Args:
        steps: What to loop over: a range, a `DataLoader`, a list.
        what: A name for the steps.

    Returns:
        The same steps, with a method `note` for values to show.

    Example:
        >>> steps = flipout.progress(range(1000), "training")
        >>> for step in steps:
        ...     terms = elbo(x, y)
        ...     steps.note(loss=terms.loss)
    """
    return Progress(steps, what)


def wrapper(requested: Callable[[Iterable], Iterable] | bool | None) -> Callable[[Iterable], Iterable]:
    """Return the function that wraps the steps of a loop: the argument itself, or a bar, or nothing."""
    return requested if callable(requested) else progress if requested else iter


def _bar_class() -> Any:
    """Return tqdm's bar, or None without tqdm, or if the output is neither a terminal nor a notebook."""
    is_notebook = type(sys.stderr).__module__.startswith("ipykernel.")
    if sys.stderr is None or not (is_notebook or sys.stderr.isatty()):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tqdm warns in a notebook without widgets, where it shows a bar of text
            from tqdm.auto import tqdm  # pyright: ignore[reportMissingModuleSource]
    except ImportError:
        return None
    return tqdm
