"""Notebooks as pages of the site: cells in Markdown, and the outputs that are committed in them.

Nothing is run, so the site needs neither Jupyter nor a kernel. `docs/notebooks.py` runs them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

FOLDER = Path(__file__).parent / "notebooks"
LINK = re.compile(r"(\]\([^)]*notebooks/[\w-]+)\.ipynb(\))")


def on_files(files: Files, config: Any) -> Files:
    for path in sorted(FOLDER.glob("*.ipynb")):
        figures: dict[str, str] = {}
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page(path, figures)))
        for name, svg in figures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=svg))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links to a notebook, which work in the repository, lead to its page."""
    return LINK.sub(r"\1.md\2", markdown)


def page(path: Path, figures: dict[str, str]) -> str:
    """Return a notebook in Markdown, and put its figures into `figures`, by file name."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = [part for cell in cells for part in _of_cell(cell, path.stem, figures)]
    parts.append(f"*This page is a notebook: [{path.name}]({path.name}), run as it stands here.*")
    return "\n\n".join(parts) + "\n"


def _of_cell(cell: dict[str, Any], stem: str, figures: dict[str, str]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/svg+xml" in data:
            if "alt" not in cell["metadata"]:
                raise ValueError(f"{stem}.ipynb: a cell with a figure needs `alt` in its metadata, words for it.")
            name = f"{stem}-{len(figures) + 1}.svg"
            figures[name] = "".join(data["image/svg+xml"])
            yield f"![{cell['metadata']['alt']}]({name})"
        elif "text/html" in data:
            yield "".join(data["text/html"])
        else:
            text = "".join(output.get("text", data.get("text/plain", ())))
            yield f"```text\n{text.rstrip()}\n```"
