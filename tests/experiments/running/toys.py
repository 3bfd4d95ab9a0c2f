"""A run of the toy experiment, and its sessions."""

import json
from pathlib import Path
from typing import Any

from tests.experiments.toy_experiment import TOY, ToyConfig


def run(folder: Path, config: ToyConfig | None = None, **options: Any):
    return TOY.run(config or ToyConfig(), folder, preset="smoke", **options)


def sessions(folder: Path) -> list[dict[str, Any]]:
    path = folder / "environment.json"
    return json.loads(path.read_text())["sessions"] if path.exists() else []
