"""What an experiment found: its numbers beside the paper's, and claims that hold or do not."""

import json
import math
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from flipout.errors import DataError, InvalidArgument

from ..door import write_atomically
from .files import RunFiles
from .legacy import with_ids
from .reader import convert

Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Number = Finite | Whole | str
Kind = Literal["must_hold", "reported"]
MUST_HOLD, REPORTED = "must_hold", "reported"
TOO_SMALL = "too small to judge"
DEMO = "demo"  # the preset that `flipout demo` notes in its result; its settings are those of "quick"
_SMALL_PRESETS = ("smoke", DEMO)


class Check(Struct, frozen=True, forbid_unknown_fields=True):
    """A claim as a testable statement. A claim that must hold is theory: its failure is a bug.

    Programs use `id`, `figure` and `quantity`. The sentences `claim` and `remark` are for readers alone.
    """

    id: str  # unique in a result: "form", or "slope/conv1" for one of a family that differs in its subject alone
    claim: str
    kind: Kind
    quantity: str  # what the value is: "slope of flipout"
    value: Finite | None  # None: not finite
    interval: tuple[Finite | None, Finite | None] | None  # None at an end: open
    holds: bool
    figure: str | None = None  # the name of the figure that shows it
    remark: str = ""  # what is special about this run: "one seed, so no interval"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[^\s/]+(/[^\s/]+)*", self.id):
            raise InvalidArgument(f"id {self.id!r:.60}: expected words without blanks, separated by /: slope/conv1")

    @property
    def family(self) -> str:
        """The id without its subject; empty for a check that stands alone."""
        return self.id.rpartition("/")[0]

    @property
    def statement(self) -> str:
        """The claim with its remark."""
        return f"{self.claim}; {self.remark}" if self.remark else self.claim


class Figure(Struct, frozen=True, forbid_unknown_fields=True):
    """A figure of a run, in two files of its folder: figures/<name>.svg and .png."""

    name: str
    caption: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-]+(\.[\w-]+)*", self.name):
            raise InvalidArgument(
                f"a figure named {self.name!r:.60}; expected a file name of letters, digits, - and _, such as variance"
            )


class Result(Struct, frozen=True, forbid_unknown_fields=True):
    """What a run found. `measured` and `paper` have the same keys wherever the paper has a number too.

    A key is "quantity", or "subject: quantity" for one of many layers, rows or methods.
    """

    experiment: str
    preset: str
    title: str
    claim: str
    setting: str  # data, network, training: what a reader needs to judge the numbers
    measured: Mapping[str, Number | None]  # None: not finite
    paper: Mapping[str, Number | None]
    checks: tuple[Check, ...]
    figures: tuple[Figure, ...] = ()

    def __post_init__(self) -> None:
        _refuse_repeats("figure", [figure.name for figure in self.figures])
        _refuse_repeats("check", [check.id for check in self.checks])

    @property
    def broken(self) -> list[Check]:
        """Claims that must hold and do not."""
        return [check for check in self.checks if check.kind == MUST_HOLD and not check.holds]

    def can_judge(self, check: Check) -> bool:
        """Tell whether this run is large enough to say that a claim of the paper does not hold.

        Smoke runs and the demo are not. A claim that must hold is judged in every run.
        """
        return check.holds or check.kind == MUST_HOLD or self.preset not in _SMALL_PRESETS

    def write(self, path: Path) -> None:
        """Write the result as JSON."""
        write_atomically(path, self.to_json())

    def to_json(self) -> str:
        """Return what result.json says."""
        return to_json(msgspec.to_builtins(self))

    @classmethod
    def of(cls, content: Any, shown: Collection[str] = ()) -> "Result":
        """Convert the content of a result.json."""
        return convert(with_ids(content, shown), cls)

    @classmethod
    def read(cls, path: Path, shown: Collection[str] = (), files: RunFiles | None = None) -> "Result":
        """Read what `write` wrote, or what an older version wrote.

        Args:
            path: A run's result.json.
            shown: The layers in the figure of a run of variances; all of them unless given. Only files without ids
                need it.
            files: The files of the run; found by the path unless given.

        Raises:
            DataError: A field is missing, unknown, or not of its type. The message names it.
        """
        try:
            return cls.of((files or RunFiles(path.parent)).load(path.name), shown)
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(
                f"{path} is not the result of a run ({type(error).__name__}: {error}). Give the folder of a finished "
                "run, as `flipout run NAME` leaves it, or finish this one with --resume."
            ) from error


def to_json(content: Any) -> str:
    """Return strict JSON. It has no infinities and no NaN: both become null."""
    return json.dumps(finite(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def finite(content: Any) -> Any:
    """Replace every number that is not finite by None."""
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [finite(value) for value in content]
    return content


def _refuse_repeats(noun: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(f"{noun} {name!r:.60} is named twice; expected a name for each")
