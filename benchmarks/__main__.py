"""Run benchmark cases and append their rows to results.csv: python -m benchmarks [case …]."""

import argparse
import importlib

import torch

from .cases import CASES, listing
from .record import append

_NOTES = """Cases with a * run if none is named. A case that runs on 'CPU, GPU' measures the GPU if there is one.
linear, conv and small compare with bayesian-torch and need it: make bench installs it."""


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks",
        description="Run benchmark cases and append their rows to benchmarks/results.csv.",
        epilog=f"{listing()}\n\n{_NOTES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("case", nargs="*", help="a case of the list below")
    names = parser.parse_args().case or [name for name, case in CASES.items() if case.is_default]
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"unknown case {', '.join(unknown)}; expected some of:\n{listing()}")
    on_gpu = [name for name in names if CASES[name].runs_on == "GPU"]
    if on_gpu and not torch.cuda.is_available():
        parser.error(f"{', '.join(on_gpu)}: needs a CUDA device, and torch finds none here. Leave it out.")
    torch.manual_seed(0)
    for name in names:
        append(importlib.import_module(f"benchmarks.{name}").run())


if __name__ == "__main__":
    main()
