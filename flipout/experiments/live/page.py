"""The live page of a run."""

from importlib.resources import files

from flipout._drawing import DARK

from ..report.markup import Html, html, joined, lines
from ..report.page import POLICY
from ..report.values import count, duration
from .plot import panel
from .state import State

REFRESH = 2  # seconds
MOST_PLOTS = 12
_STYLE = (
    """
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)); gap: 1.5rem; }
.plot { margin: 0; }
.plot > svg { width: 100%; height: auto; }
.key { white-space: nowrap; }
@media (prefers-color-scheme: dark) {
"""
    + "".join(
        f'  [{attribute}="{light}"] {{ {attribute}: {dark}; }}\n'
        for light, dark in DARK.items()
        for attribute in ("stroke", "fill")
    )
    + "}\n"
)


def live_page(state: State) -> Html:
    """Return the page about the present state. It updates itself until the run is finished."""
    css = files("flipout.experiments.report").joinpath("page.css").read_text(encoding="utf-8")
    shown = [*state.curves.items()][:MOST_PLOTS]
    left_out = len(state.curves) - len(shown)
    return html(
        """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
{refresh}
<link rel="icon" href="data:,">
<title>{state.name} · flipout watch</title>
<style>
{css}{style}</style>
</head>
<body>
<header>
<p class="name">flipout watch</p>
<h1>{state.name}</h1>
<p class="lead">{lead}</p>
</header>
<main>
{problems}
<div class="plots">
{plots}
</div>
{more}
</main>
</body>
</html>
""",
        policy=POLICY,
        refresh="" if state.is_finished else html('<meta http-equiv="refresh" content="{seconds}">', seconds=REFRESH),
        state=state,
        css=Html(css),  # files of this package
        style=Html(_STYLE),
        lead=_lead(state),
        problems=lines(html('<p class="note">{problem}</p>', problem=problem) for problem in state.problems),
        plots=joined((panel(metric, series) for metric, series in shown), "\n") or _waiting(state),
        more=html('<p class="note">And {more}.</p>', more=count(left_out, "more metric")) if left_out else "",
    )


def _lead(state: State) -> str:
    quiet = "" if state.quiet is None else f" The last change was {duration(state.quiet)} ago."
    pieces = count(len(state.finished_pieces), "piece")
    if state.is_finished:
        return f"Finished, with {pieces} of work. Write its page with flipout report."
    return f"{pieces} of work finished.{quiet}"


def _waiting(state: State) -> Html:
    return html("<p>No metrics were logged{yet}.</p>", yet="" if state.is_finished else " yet")
