"""The figures of docs/reliability.md are those of the files that the fuzzer and the soak wrote."""

import json
from collections import Counter
from pathlib import Path

from tests.faults.fuzz import HEAVY, READERS
from tests.faults.soak import SAMPLES, soak

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reliability.md").read_text()


def test_the_fuzzers_figures() -> None:
    lines = [json.loads(line) for line in (DOCS / "reliability" / "fuzz.jsonl").read_text().splitlines()]
    assert {line["reader"] for line in lines} == READERS.keys() | HEAVY.keys()
    ended = sum((Counter(line["ended"]) for line in lines), Counter())
    assert ended.keys() == {"refused", "same"}
    assert ended.total() == sum(line["files"] for line in lines) >= 10_000
    assert f"mutated files of {len(READERS) + len(HEAVY)} readers | {ended.total():,} files" in PAGE
    assert f"{ended['refused']:,} refused, {ended['same']:,} without effect" in PAGE


def test_the_figures_of_chaos() -> None:
    found = json.loads((DOCS / "reliability" / "chaos.json").read_text())
    parts = {name: part for name, part in found.items() if isinstance(part, dict) and "kills" in part}
    assert parts.keys() == {"runs", "real runs", "drivers", "ranks", "fleet drivers"}
    assert sum(part["kills"] for part in parts.values()) == found["kills"] >= 100
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and " kills of " in line]
    for part, row in zip(parts.values(), rows, strict=True):
        assert f"| {part['kills']} kills of {part['outcomes']} " in row
        assert row.endswith("| 0 differ |")
        assert part["differ"] == 0


def test_the_figures_of_the_disturbed_fleet() -> None:
    found = json.loads((DOCS / "reliability" / "chaos.json").read_text())["fleet"]
    happened = found["events"]
    assert found["generations"] == 200
    assert found["equal"]
    orders = ("kill", "kills"), ("stop", "stops"), ("slow", "slow"), ("fail late", "late errors")
    orders += ("leave", "leave"), ("join", "join")
    assert f"| {', '.join(f'{happened[order]} {noun}' for order, noun in orders)} |" in PAGE
    noticed = (found[f"workers that {what}"] for what in ("died", "hung"))
    said = "{} deaths, {} hung and {} late answers noticed".format(*noticed, found["late answers dropped"])
    assert f"weights equal; {said}" in PAGE


def test_the_soaks_figures() -> None:
    found = json.loads((DOCS / "reliability" / "soak.json").read_text())
    assert found["seconds"] >= 3600
    assert found["nice"] == 0
    assert found["is_flat"]
    assert f"{found['rounds']:,} rounds in {found['cpu_seconds']} s of CPU time" in PAGE
    assert f"{found['mib_at_the_start']:.1f} MiB at the start, {found['mib_at_the_end']:.1f} at the end" in PAGE
    assert f"{found['malloc_mib_at_the_start']:.1f} and {found['malloc_mib_at_the_end']:.1f} MiB in use" in PAGE


def test_a_short_soak_has_a_curve() -> None:
    found = soak(1.0)
    assert 1 <= len(found["curve"]) <= SAMPLES
    assert found["curve"][-1]["rounds"] <= found["rounds"]
    assert all(sample["resident_mib"] > sample["malloc_mib"] > 0 for sample in found["curve"])
