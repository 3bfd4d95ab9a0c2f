"""python -m benchmarks [name …]: run the cases and append their rows to results.csv."""

import importlib
import sys

import torch

from .record import append

NAMES = ("linear", "conv", "recurrent", "schemes", "convert", "es")


def main() -> None:
    torch.manual_seed(0)
    for name in sys.argv[1:] or NAMES:
        append(importlib.import_module(f"benchmarks.{name}").run())


if __name__ == "__main__":
    main()
