"""What an experiment found: numbers beside the paper's, and claims that hold or not."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from flipout.errors import DataError, InvalidArgument

from .atomic import write_atomically
from .checked import checked, load

Number = float | int | str
MUST_HOLD, REPORTED = "must_hold", "reported"


@dataclass(frozen=True)
class Check:
    """A claim as a testable statement. One that must hold is theory: its failure is a bug."""

    claim: str
    kind: Literal["must_hold", "reported"]
    value: float | None  # None: not finite
    interval: tuple[float | None, float | None] | None  # None at an end: open
    holds: bool
    figure: str | None = None  # the name of the one it can be seen in; older result files do not say


@dataclass(frozen=True)
class Figure:
    """Two files in the run's folder: figures/<name>.svg and .png."""

    name: str
    caption: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-]+(\.[\w-]+)*", self.name):
            raise InvalidArgument(
                f"a figure named {self.name!r:.60}; expected a file name of letters, digits, - and _, such as variance"
            )


Seen = Callable[[str, Mapping[str, Any]], str | None]  # a claim, the settings of its run → the figure that shows it


def seen_in(**claims: str) -> Seen:
    """Figure = a pattern of the claims that can be seen in it."""

    def figure(claim: str, settings: Mapping[str, Any]) -> str | None:
        return next((name for name, pattern in claims.items() if re.search(pattern, claim)), None)

    return figure


@dataclass(frozen=True)
class Result:
    """`measured` and `paper` share their keys wherever the paper has a number of its own."""

    experiment: str
    preset: str
    title: str
    claim: str
    setting: str  # data, network, how it was trained: what a reader needs to judge the numbers
    measured: Mapping[str, Number | None]  # None: not finite
    paper: Mapping[str, Number | None]
    checks: tuple[Check, ...]
    figures: tuple[Figure, ...] = ()

    def __post_init__(self) -> None:
        names = [figure.name for figure in self.figures]
        for name in names:
            if names.count(name) > 1:
                raise InvalidArgument(f"figure {name!r} is named twice; expected a name for each")

    @property
    def broken(self) -> list[Check]:
        """Claims of theory that do not hold."""
        return [check for check in self.checks if check.kind == MUST_HOLD and not check.holds]

    def linked(self, seen: Seen, settings: Mapping[str, Any]) -> "Result":
        """Checks that do not say in which figure they can be seen, led to it where it is there."""
        there = {figure.name for figure in self.figures}

        def link(check: Check) -> Check:
            found = None if check.figure else seen(check.claim, settings)
            return replace(check, figure=found) if found in there else check

        return replace(self, checks=tuple(link(check) for check in self.checks))

    def write(self, path: Path) -> None:
        write_atomically(path, to_json(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "Result":
        """Read what `write` wrote.

        Raises:
            DataError: A field is missing, unknown, or not of its type; the message names it.
        """
        try:
            return checked(load(path), cls)
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path} is not the result of a run ({type(error).__name__}: {error}). Give the folder of a finished "
                "run, as `flipout run NAME` leaves it, or finish this one with --resume."
            ) from error


def to_json(content: Any) -> str:
    """JSON that every reader takes: infinities and NaN, which it cannot say, are null."""
    return json.dumps(finite(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def finite(content: Any) -> Any:
    """None for what is not."""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [finite(value) for value in content]
    return content
