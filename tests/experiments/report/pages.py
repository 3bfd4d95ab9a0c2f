"""Folders of finished runs for the report, and a parser for its pages."""

import base64
import json
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from flipout.experiments.running.results import Check, Figure, Result

WORD = "unbreakable" * 12
# The second figure asks for more than a page may fetch.
SVGS = {
    "variance": '<svg xmlns="http://www.w3.org/2000/svg" width="640" height="420" viewBox="0 0 640 420">'
    '<rect width="640" height="420" fill="#fff"/><path d="M40 40 600 380" stroke="#1f77b4" stroke-width="3"/></svg>',
    "layers": '<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="400" viewBox="0 0 1200 400">'
    '<image href="https://example.org/a.png" width="9" height="9"/><circle cx="600" cy="200" r="150"/></svg>',
}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
CHECKS = (
    Check(
        "reaches",
        "flipout reaches independent weights at N = 8192",
        "reported",
        "ratio of variances",
        1.31,
        (1.22, 1.4),
        False,
    ),
    Check(
        "mean",
        "the mean gradient is that of independent weights",
        "must_hold",
        "difference",
        0.0021,
        (-0.0113, 0.0155),
        True,
    ),
    Check("below", "flipout is below shared at every batch size", "reported", "ratio", 1.0, None, True),
    Check("start", f"at N = 1 the variances are equal, {WORD}", "must_hold", "ratio", 2.5, (2.4, 2.6), False),
)

LAYERS = tuple(
    Check(
        f"slope/conv{i}",
        f"conv{i}: the slope is −1",
        "reported",
        "slope of flipout",
        -0.9 - 0.01 * i,
        (-1.1, -0.9),
        i != 3,
        "layers",
    )
    for i in range(1, 13)
)


def finished(
    folder: Path, experiment: str = "variance-fc", settings: Mapping[str, Any] | None = None, **changes: Any
) -> Path:
    """Write the folder of a finished run, with these `settings` in its config and these changes to its result."""
    fields: dict[str, Any] = {
        "experiment": experiment,
        "preset": "quick",
        "title": "Figure 2: the variance of the gradient",
        "claim": "Flipout's variance falls as 1/N & stays below that of shared perturbations.",
        "setting": "Digits; 64–100–10, ReLU; Gaussian noise, 100 draws.",
        "measured": {"slope of flipout": -0.98734, "floor of shared": 3.8412e-7, "data": "digits", WORD: WORD},
        "paper": {"slope of flipout": "≈ −1", "epochs": 50},
        "checks": CHECKS,
        "figures": (Figure("variance", "Variance against N"), Figure("layers", 'Each layer, "by itself"')),
        **changes,
    }
    (folder / "figures").mkdir(parents=True)
    Result(**fields).write(folder / "result.json")
    config = {
        "experiment": experiment,
        "preset": "quick",
        "seed": 0,
        "batch_sizes": [1, 2, 4],
        "data": WORD,
        **(settings or {}),
    }
    environment = {
        "flipout": "0.2.0",
        "commit": None,
        "python": "3.11.9",
        "torch": "2.13.0",
        "numpy": "2.4.6",
        "platform": "Linux x86_64",
        "device": "NVIDIA H200",
        "sessions": [
            {"started": "2026-11-15T10:00:00+00:00", "seconds": 100.0},
            {"started": "2026-11-16T10:00:00+00:00", "seconds": 23.4},
        ],
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "environment.json").write_text(json.dumps(environment))
    for name, svg in SVGS.items():
        (folder / "figures" / f"{name}.svg").write_text(svg)
        (folder / "figures" / f"{name}.png").write_bytes(PNG)
    return folder


def seen_in(figure: str, checks: Iterable[Check]) -> list[Check]:
    return [replace(check, figure=figure) for check in checks]


def checks_of(folder: Path) -> list[dict[str, Any]]:
    """Return the rows that result.json asks for: claims that must hold first, otherwise in order."""
    held = json.loads((folder / "result.json").read_text())["checks"]
    rows = [check for check in held if check["kind"] == "must_hold"]
    rows += [check for check in held if check["kind"] == "reported"]
    return [{**row, "numbers": [row["value"], *(row["interval"] or [])]} for row in rows]


class Parsed(HTMLParser):
    """The elements of a page in order, with all text inside them; closing tags must match."""

    VOID = ("meta", "link", "img", "br", "wbr")

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.elements: list[dict[str, Any]] = []
        self.open: list[dict[str, Any]] = []
        self.feed(page.read_text(encoding="utf-8"))
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "text": "", "inside": list(self.open), **dict(attrs)}
        self.elements.append(element)
        if tag not in self.VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, *tags: str, inside: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        found = [element for element in self.elements if element["tag"] in tags]
        return found if inside is None else [e for e in found if any(outer is inside for outer in e["inside"])]
