"""The committed result is what its pieces say."""

from pathlib import Path
from shutil import copytree

import pytest

from flipout.experiments.registry import EXPERIMENTS
from flipout.experiments.running.results import Result
from flipout.experiments.uci.networks import METHODS
from flipout.experiments.uci.trials import UciConfig

RESULTS = Path(__file__).parents[3] / "results" / "uci"


@pytest.mark.usefixtures("real_data")
def test_the_committed_result_is_computed_from_its_pieces_again(tmp_path, monkeypatch):
    experiment = EXPERIMENTS["uci"]
    folder = copytree(RESULTS, tmp_path / "run")
    committed = Result.read(folder / "result.json")
    monkeypatch.setattr("flipout.experiments.uci.trials.train", pytest.fail)  # all pieces are there
    assert experiment.run(experiment.config("paper"), folder, preset="paper", resume=True) == committed


def test_the_committed_result_has_all_sets_and_methods():
    result = Result.read(RESULTS / "result.json")
    for name in UciConfig().sets:
        assert f"UCI {name}: the folder in FLIPOUT_DATA, checksums verified" in result.setting
        for method in METHODS.values():
            for quantity in ("RMSE", "log-likelihood", "CRPS", "coverage of 90 % intervals"):
                assert f"{name}, {method.title}: {quantity}" in result.measured


def test_the_longer_run_is_flipout_with_the_choices_of_the_first():
    longer = RESULTS / "longer"
    result = Result.read(longer / "result.json")
    assert "6000 steps" in result.setting
    for name in UciConfig().sets:
        piece = f"pieces/{name}.flipout.search.json"
        assert (longer / piece).read_bytes() == (RESULTS / piece).read_bytes()
    (published,) = (check for check in result.checks if check.family == "published")
    page = (RESULTS.parents[1] / "docs" / "experiments.md").read_text(encoding="utf-8")
    assert f"**{published.value:.0f} of 9** are not below the published number" in page
