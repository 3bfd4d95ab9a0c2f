"""Draw the figures of the pages whose code draws one, by running that code.

    python docs/pictures.py

The code of a page leaves its figure under the name `figure`.
"""

import re
from pathlib import Path
from typing import Any

from matplotlib import rc_context

ROOT = Path(__file__).parents[1]
PAGES = {"docs/recipes/regression.md": "regression", "docs/which-uncertainty.md": "which-uncertainty"}  # → its picture


def figure(page: str) -> Any:
    """Run the blocks of a page until one has drawn a figure, and return it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        names: dict[str, Any] = {"__name__": "docs"}
        exec(compile(block, page, "exec"), names)
        if "figure" in names:
            return names["figure"]
    raise ValueError(f"{page} draws no figure; expected a block that leaves one under the name `figure`.")


def draw(page: str, path: Path) -> None:
    """Write the figure of a page. The same numbers always give the same bytes."""
    with rc_context({"svg.hashsalt": PAGES[page]}):
        figure(page).savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    for page, name in PAGES.items():
        draw(page, ROOT / "docs" / "images" / f"{name}.svg")
