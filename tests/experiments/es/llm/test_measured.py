"""The speed of forward passes, and members beside what they export."""

from pathlib import Path

from flipout.experiments.es.llm.measured import METHODS, difference, shares
from tests.experiments.es.llm.test_tasks import SMOKE, run_in


def test_members_are_what_they_export(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    run._piece = "here"
    assert difference(SMOKE, run) < 1e-4


def test_shares_of_inference(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    run._piece = "here"
    found = shares(SMOKE, run)
    assert found.keys() == set(METHODS)
    assert all(share > 0 for share in found.values())
