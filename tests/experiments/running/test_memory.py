"""The allocator keeps what was freed, so that the next tensor costs no page faults."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CODE = """
import resource, sys, torch
from flipout.experiments.running.memory import keep_large_blocks

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        torch.ones(3_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
print(keep_large_blocks(), first, faults())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc has the option")
def test_freed_memory_is_used_again():
    ended = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True)
    taken, before, after = ended.stdout.split()
    if taken == "False":
        pytest.skip("the allocator is not glibc's")
    assert int(after) < int(before) / 10
