"""The report: one self-contained HTML page about finished runs, the paper's numbers beside ours."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from flipout.errors import DataError

from ..door import write_atomically
from ..running.results import MUST_HOLD, REPORTED
from .article import article_of
from .comparison import comparable, comparison_of, heading
from .finished import Finished, read
from .index import broken, table_of_runs
from .markup import Html, html, lines
from .values import count, tally

# The page shows what it carries and fetches nothing, whatever a result file says.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def write_page(folders: Sequence[Path], path: Path) -> None:
    """Write one page about these runs, in this order. All runs are read before anything is written."""
    runs = read(folders)
    if not runs:
        raise DataError("No run was given. Expected the folder of at least one finished run: `flipout report RUN...`.")
    if path.is_dir() or not path.parent.is_dir():
        wrong = "is a folder" if path.is_dir() else "is in a folder that does not exist"
        raise DataError(f"{path} {wrong}. Expected the name of a file for the page, such as report.html.")
    write_atomically(path, _page(runs))


def _page(runs: Sequence[Finished]) -> Html:
    css = files("flipout.experiments.report").joinpath("page.css").read_text(encoding="utf-8")
    groups = comparable(runs)
    return html(
        """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:,">
<title>{title} · flipout report</title>
<style>
{css}</style>
</head>
<body>
<header>
<p class="name">flipout report</p>
<h1>The paper’s numbers beside ours</h1>
<p class="lead">{lead}</p>
</header>
<main>
{broken}
{index}
{comparisons}
{articles}
</main>
</body>
</html>
""",
        policy=POLICY,
        title=f"{len(runs)} runs" if len(runs) > 1 else runs[0].result.title,
        css=Html(css),  # a file of this package
        lead=_lead(runs),
        broken=broken(runs),
        index=table_of_runs(runs, [heading(group) for group in groups]),
        comparisons=lines(comparison_of(group) for group in groups),
        articles=lines(article_of(run) for run in runs),
    )


def _lead(runs: Sequence[Finished]) -> str:
    names = {run.result.experiment for run in runs}
    sentences = [count(len(runs), "run") + (f" of {count(len(names), 'experiment')}" if len(runs) > 1 else "")]
    for kind, which in ((MUST_HOLD, "that must hold"), (REPORTED, "that are reported")):
        checks = [check for run in runs for check in run.result.checks if check.kind == kind]
        if checks:
            sentences.append(f"Of the claims {which}, {tally(checks)} hold")
    return ". ".join(sentences) + "."
