"""Write docs/gallery.md: every committed figure with its caption and the command that makes it.

    python docs/gallery.py

A test compares the page with what this script would write.
"""

import json
import re
from pathlib import Path

from flipout.experiments.registry import EXPERIMENTS
from flipout.experiments.running.results import Figure, Result

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gallery.md"
HEAD = """# Gallery

Every figure of the committed results. Each was made by the command above it, from the files in `results/`.
`flipout report results/NAME --redraw` draws them again. The
[lab notes](experiments.md) say what the figures mean, and [this page](paper.md) what holds.
"""


def page() -> str:
    """Return the page in Markdown."""
    sections = [HEAD]
    for name, experiment in EXPERIMENTS.items():
        folder = ROOT / "results" / name
        if not (folder / "result.json").exists():
            continue
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        result = Result.read(folder / "result.json", config.get("shown", ()))
        command = f"flipout run {name} --preset {result.preset}"
        cost = experiment.costs[result.preset]  # pyright: ignore[reportArgumentType]
        sections.append(f"## {experiment.title}\n\n```\n{command}\n```\n\nTakes {cost}.\n")
        sections += [_figure(name, figure) for figure in result.figures]
    return "\n".join(sections)


def _figure(name: str, figure: Figure) -> str:
    sentence = re.split(r"(?<=\.) (?=[A-Z])", figure.caption)[0].rstrip(".")
    return f"![{sentence}](../results/{name}/figures/{figure.name}.svg)\n\n*{figure.name}*: {sentence}.\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
