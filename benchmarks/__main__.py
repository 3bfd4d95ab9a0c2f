"""python -m benchmarks [name …]: run cases and append their rows to results.csv. Those of a GPU have to be named."""

import importlib
import sys
from pathlib import Path

import torch

from .record import append

NAMES = ("linear", "conv", "recurrent", "schemes", "convert", "es", "small")


def main() -> None:
    files = sorted(Path(__file__).parent.glob("*.py"))
    there = [path.stem for path in files if "\ndef run(" in path.read_text(encoding="utf-8")]
    names = sys.argv[1:] or NAMES
    if unknown := [name for name in names if name not in there]:
        sys.exit(f"{', '.join(unknown)} given; expected some of {', '.join(there)}, or none for {', '.join(NAMES)}.")
    torch.manual_seed(0)
    for name in names:
        append(importlib.import_module(f"benchmarks.{name}").run())


if __name__ == "__main__":
    main()
