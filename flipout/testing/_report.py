"""The results of the checks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from ..errors import InvalidArgument

Outcome = Literal["passed", "failed", "not applicable"]


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str  # one of `CHECKS`
    outcome: Outcome  # "passed", "failed" or "not applicable"
    sentence: str  # what was seen, in words
    seen: float | None = None  # the number that was measured
    expected: float | None = None  # the number that a correct layer has
    error_rate: float | None = None  # probability that a correct layer fails; 0 for an exact comparison

    def __repr__(self) -> str:
        numbers = "" if self.seen is None else f", seen {_number(self.seen)}, expected {_number(self.expected)}"
        return f"Check({self.name}: {self.outcome}{numbers})"


class Report:
    """The results of all checks, in order; printed, a table."""

    def __init__(self, checks: Iterable[Check]) -> None:
        self.checks = tuple(checks)

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __len__(self) -> int:
        return len(self.checks)

    def __getitem__(self, name: str) -> Check:
        """Return the check of this name."""
        for check in self.checks:
            if check.name == name:
                return check
        raise InvalidArgument(f"{name!r} is not in the report; it has {', '.join(repr(c.name) for c in self.checks)}.")

    def names(self, outcome: Outcome) -> list[str]:
        """Return the names of the checks with this outcome.

        Args:
            outcome: "passed", "failed" or "not applicable".
        """
        return [check.name for check in self.checks if check.outcome == outcome]

    @property
    def conforms(self) -> bool:
        """Whether no check failed. Some may not have been applicable."""
        return not self.names("failed")

    def __repr__(self) -> str:
        counts = (f"{len(self.names(o))} {o}" for o in ("passed", "failed", "not applicable"))
        return f"Report({', '.join(counts)})"

    def __str__(self) -> str:
        head = ("check", "outcome", "seen", "expected", "false alarms", "what was seen")
        rows = [head, *(_cells(check) for check in self.checks)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)]
        return "\n".join(
            "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
        )


def _cells(check: Check) -> tuple[str, ...]:
    numbers = (_number(value) for value in (check.seen, check.expected, check.error_rate))
    return (check.name, check.outcome, *numbers, check.sentence)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
