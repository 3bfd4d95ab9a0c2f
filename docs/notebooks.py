"""Run the notebooks of docs/notebooks/ and write their outputs into them.

    python docs/notebooks.py [NAME...]

A test runs them too, and compares the outputs with the committed ones.
"""

import json
import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import nbclient
import nbformat
from traitlets.config import Config

FOLDER = Path(__file__).parent / "notebooks"
# Figures are SVG, the same bytes every time.
OPTIONS = [
    "--InlineBackend.figure_formats={'svg'}",
    "--InlineBackend.print_figure_kwargs={'bbox_inches': 'tight', 'metadata': {'Date': None}}",
    "--InlineBackend.rc={'svg.hashsalt': 'flipout', 'svg.fonttype': 'path'}",
]
TIMES = re.compile(r" \[\d\d:\d\d<[^,\]]*, [^,\]]*(?:, ([^\]]*))?\]")  # beside a bar: elapsed, left, rate, and a note


# Between two notebooks: what the first defined is gone, and the cells of the second are counted from 1.
FORGET = "get_ipython().reset()\nget_ipython().execution_count = 0"


def run(*paths: Path) -> list[dict[str, Any]]:
    """Return notebooks with the outputs of this run, one after the other in one kernel. It writes no other files."""
    notebooks = [nbformat.read(path, as_version=4) for path in paths]
    cells = [cell for notebook in notebooks for cell in (*notebook.cells, nbformat.v4.new_code_cell(FORGET))]
    with TemporaryDirectory() as folder:
        places = dict.fromkeys(("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR"), folder)
        with mock.patch.dict(os.environ, {**places, "JUPYTER_PLATFORM_DIRS": "1"}):
            client = nbclient.NotebookClient(
                nbformat.v4.new_notebook(cells=cells),
                kernel_name="python3",
                timeout=300,
                extra_arguments=OPTIONS,
                coalesce_streams=True,
                config=Config({"KernelManager": {"transport": "ipc"}}),  # no port
            )
            client.execute()
    for cell in cells:
        cell.metadata.pop("execution", None)  # when each cell ran
        for output in cell.get("outputs", ()):
            if "text" in output:
                output["text"] = TIMES.sub(lambda found: f" [{found[1]}]" if found[1] else "", output["text"])
    for notebook in notebooks:
        notebook.metadata = {key: notebook.metadata[key] for key in ("kernelspec",)}
    return notebooks


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            text = json.dumps(*run(path), indent=1, ensure_ascii=False, sort_keys=True)
            path.write_text(f"{text}\n", encoding="utf-8")
