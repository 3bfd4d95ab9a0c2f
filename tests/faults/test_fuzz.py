"""A mutated file is refused in one line, or it changes nothing. There is no traceback, no hang and no write outside.

FLIPOUT_FUZZ=10000 sets the number of cases in all; `make fuzz` does so. FLIPOUT_FUZZ_OUT=FILE appends how each reader's
cases ended, a line of JSON for each.
"""

import json
import math
import os
import shutil
import tempfile
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flipout._files import append
from flipout.experiments.registry import EXPERIMENTS
from tests.experiments.toy_experiment import TOY
from tests.faults.fuzz import HEAVY, READERS, Reader, files_of, verdict
from tests.faults.mutations import Mutation, mutations

CASES = int(os.environ.get("FLIPOUT_FUZZ", "240"))
CHOSEN = {
    name: reader
    for name, reader in {**READERS, **(HEAVY if CASES > 1000 else {})}.items()
    if find_spec(reader.needs) is not None
}
EACH = math.ceil(CASES / len(CHOSEN))


@pytest.mark.parametrize("name", CHOSEN)
def test_a_mutated_file_is_refused_or_changes_nothing(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)
    monkeypatch.setenv("FLIPOUT_COMMIT", "none")
    reader, clean, ended, started = CHOSEN[name], tmp_path / "clean", Counter(), time.process_time()
    reader.make(clean)
    mutable = files_of(clean)
    expected = outcome(reader, clean)

    @settings(
        max_examples=EACH,
        deadline=None,
        database=None,
        derandomize=CASES <= 1000,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    @given(st.sampled_from(mutable), mutations())
    def case(file: str, mutation: Mutation) -> None:
        found = verdict(reader, clean, file, mutation, expected)
        ended[found.ended] += 1
        assert found.is_right, (file, mutation, found)

    try:
        case()
    finally:
        taken = time.process_time() - started
        found = {"reader": name, "files": ended.total(), "ended": dict(ended), "cpu_seconds": round(taken, 1)}
        if out := os.environ.get("FLIPOUT_FUZZ_OUT"):
            append(Path(out), json.dumps(found).encode() + b"\n")
    assert ended["refused"] > 0
    assert ended.total() >= EACH


@pytest.mark.parametrize("kind", ["a hole", "another name"])
@pytest.mark.parametrize("name", ["run --resume, unfinished", "checkpoint of a strategy, early"])
def test_every_file_with_a_hole_or_another_name(name: str, kind: str, tmp_path: Path, monkeypatch) -> None:
    """A file with a hole claims more bytes than there is memory. One with another name is a file elsewhere too."""
    monkeypatch.setitem(EXPERIMENTS, "toy", TOY)
    monkeypatch.setenv("FLIPOUT_COMMIT", "none")
    reader, clean = CHOSEN[name], tmp_path / "clean"
    reader.make(clean)
    expected = outcome(reader, clean)
    for file in files_of(clean):
        found = verdict(reader, clean, file, Mutation(kind, 0), expected)
        assert found.is_right, (file, found)


def outcome(reader: Reader, clean: Path) -> Any:
    """Return the outcome of a clean folder, and check that a second reading has it too."""
    outcomes = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, "work", clean.name)
            shutil.copytree(clean, folder)
            outcomes.append(reader.read(folder))
    assert outcomes[0] == outcomes[1] or not reader.is_checked
    return outcomes[0]
