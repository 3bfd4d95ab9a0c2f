"""What a run found, as the terminal shows it."""

import shlex
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .running.results import MUST_HOLD, REPORTED, TOO_SMALL, Check, Result


def show(result: Result, folder: Path, *, has_page: bool = False) -> None:
    """Print the checks of a result, its numbers beside the paper's, a summary, and what to do next.

    Args:
        result: What a run found.
        folder: The folder of the run.
        has_page: The page of the run is written already, so the command for it is left out.
    """
    console = Console(markup=False, emoji=False, highlight=False)
    console.print(_checks(result))
    if result.paper:
        console.print(_numbers(result))
    console.print(result.setting)
    console.print(_tally(result))
    console.print(f"The run is in {folder}", soft_wrap=True)
    for check in result.broken:
        console.print(f"must hold but does not: {check.statement}", style="bold red")
    if not has_page:
        console.print(f"See it as a page:\n  {report_command(folder)}", soft_wrap=True)


def report_command(folder: Path) -> str:
    """Return the command that writes the page of a run into its folder."""
    return shlex.join(["flipout", "report", str(folder), "--out", str(folder / "report.html")])


def _checks(result: Result) -> Table:
    """Return the claims in two groups. The kind is a heading and no column, so that claims have room at 80 columns."""
    table = Table(title=result.title, title_justify="left", box=None, pad_edge=False)
    for head in ("", "claim", "measured", "interval"):
        table.add_column(head, overflow="fold", justify="right" if head == "measured" else "left")
    for kind in (MUST_HOLD, REPORTED):
        checks = [check for check in result.checks if check.kind == kind]
        if checks:
            table.add_row("", kind.replace("_", " "), style="bold")
        for check in checks:
            mark, too_small = ("✓" if check.holds else "✗"), ""
            if not result.can_judge(check):
                mark, too_small = "–", f", {TOO_SMALL}"
            ends = [] if check.interval is None else ["" if end is None else f"{end:.3g}" for end in check.interval]
            value = "not finite" if check.value is None else f"{check.value:.4g}"
            table.add_row(mark, check.statement + too_small, value, " … ".join(ends).strip())
    return table


def _numbers(result: Result) -> Table:
    table = Table("", "measured", "the paper", box=None, pad_edge=False)
    for name, quoted in result.paper.items():
        values = (result.measured.get(name, "–"), quoted)
        table.add_row(name, *(f"{value:.5g}" if isinstance(value, float) else str(value) for value in values))
    return table


def _tally(result: Result) -> str:
    theory, reported = ([check for check in result.checks if check.kind == kind] for kind in (MUST_HOLD, REPORTED))
    small = [check for check in reported if not result.can_judge(check)]
    unjudged = f", {len(small)} {TOO_SMALL}" if small else ""
    return f"Must hold: {_share(theory)} do. Reported: {_share(reported)} hold{unjudged}."


def _share(checks: list[Check]) -> str:
    return f"{sum(check.holds for check in checks)} of {len(checks)}"
