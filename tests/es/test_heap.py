"""Freed activations stay with the process: the same blocks are not mapped again."""

import resource
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch
torch.set_num_threads(1)
if sys.argv[1] == "kept":
    from flipout.es._heap import keep_freed_memory
    keep_freed_memory()
blocks = lambda: [torch.zeros(2**18) for _ in range(8)]
blocks()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    blocks()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_freed_blocks_cause_no_page_faults() -> None:
    assert resource.getpagesize() <= 2**16
    faults: dict[str, int] = {}
    # At most three times: a busy machine may take pages away, and each counts as a fault when it is read again.
    for _ in range(3):
        for kind in ("default", "kept"):
            command = [sys.executable, "-c", SCRIPT, kind]
            run = subprocess.run(command, capture_output=True, text=True, check=True)
            faults[kind] = min(int(run.stdout), faults.get(kind, sys.maxsize))
        if faults["kept"] < faults["default"] / 10:
            return
    pytest.fail(f"page faults: {faults}")
