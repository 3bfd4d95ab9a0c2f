"""A killed rank costs the epoch that it was in and nothing else."""

from pathlib import Path

import torch

from tests.scaling.restarted import EPOCHS
from tests.scaling.torchrun import launch, results


def test_a_killed_rank_does_not_change_the_result(tmp_path: Path) -> None:
    outcomes = []
    for name, *kill in (("undisturbed",), ("killed", 1, 2, 1)):
        folder = tmp_path / name
        folder.mkdir()
        output = launch("tests.scaling.restarted", 2, folder, *kill, restarts=1)
        assert ("exitcode: -9" in output) == bool(kill)
        outcomes += results(folder, 1)
    undisturbed, killed = outcomes
    assert undisturbed["epochs"] == list(range(EPOCHS))
    assert killed["epochs"] == [2, 3]  # in the second attempt
    assert killed["losses"] == undisturbed["losses"]
    assert all(torch.equal(killed["state"][name], value) for name, value in undisturbed["state"].items())
