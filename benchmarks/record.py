"""Measure variants interleaved, and record a CSV row for each, with machine, versions and date."""

import csv
import gc
import io
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import torch

RESULTS = Path(__file__).with_name("results.csv")


@dataclass(frozen=True)
class Row:
    date: str
    commit: str
    device: str
    threads: int
    python: str
    torch: str
    case: str
    variant: str
    dtype: str
    what: str  # the unit: "ms", "bytes", "calls" of Python functions, "count", "ratio", "nats" or "mse"
    median: float
    p10: float
    p90: float
    repeats: int
    against: str  # the variant of the same run that `ratio` compares with
    ratio: float | None


def _device() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.processor()


def _commit() -> str:
    """Return the commit of this clone, or FLIPOUT_COMMIT if the source came without its history."""
    if named := os.environ.get("FLIPOUT_COMMIT"):
        return named
    root = Path(__file__).parent
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True)
    changed = subprocess.run(["git", "status", "--porcelain", "--", "flipout"], cwd=root.parent, capture_output=True)
    return (head.stdout.strip() or "unknown") + ("+" if changed.stdout.strip() else "")


def rows(
    case: str, measured: dict[str, list[float]], against: dict[str, str], *, what: str = "ms", dtype: str = "float32"
) -> list[Row]:
    """Return a row for each variant. `against` names the variant that its median is divided by."""
    middle = {variant: statistics.median(values) for variant, values in measured.items()}
    found = []
    for variant, values in measured.items():
        ordered = sorted(values)
        other = against.get(variant, "")
        found.append(
            Row(
                date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
                commit=_commit(),
                device=_device(),
                threads=torch.get_num_threads(),
                python=platform.python_version(),
                torch=torch.__version__,
                case=case,
                variant=variant,
                dtype=dtype,
                what=what,
                median=round(middle[variant], 4),
                p10=round(ordered[len(ordered) // 10], 4),
                p90=round(ordered[-1 - len(ordered) // 10], 4),
                repeats=len(values),
                against=other,
                ratio=round(middle[variant] / middle[other], 4) if other else None,
            )
        )
    return found


def interleaved(
    variants: Mapping[str, Callable[[], object]],
    *,
    seconds: float,
    least: int = 15,
    turns: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the milliseconds of each variant, measured in turn, so that a change in the machine's load meets them all.

    With several `turns` at a time, the first quarter is not counted: it runs on the caches of another variant. On a
    machine that does other work too, `time.process_time` is a steadier `clock`.
    """
    measured: dict[str, list[float]] = {name: [] for name in variants}
    for run in variants.values():
        for _ in range(2):
            run()
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        while time.perf_counter() - start < seconds or len(next(iter(measured.values()))) < least:
            for name, run in variants.items():
                for turn in range(turns):
                    begin = clock()
                    run()
                    taken = (clock() - begin) * 1e3
                    if turn >= turns // 4:
                        measured[name].append(taken)
    finally:
        gc.enable()
    return measured


def append(new: Iterable[Row]) -> None:
    """Add rows to the results, all of them or none, and print them."""
    listed = list(new)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    if RESULTS.exists():
        text.write(RESULTS.read_text())
    else:
        writer.writeheader()
    writer.writerows(asdict(row) for row in listed)
    replacement = RESULTS.with_suffix(".new")
    replacement.write_text(text.getvalue())
    replacement.replace(RESULTS)
    for row in listed:
        ratio = f"{row.ratio:6.2f} × {row.against}" if row.ratio is not None else ""
        print(f"{row.case:34} {row.variant:28} {row.median:12.3f} {row.what:6} {ratio}", flush=True)
