"""The committed results: their checks lead to the figures that show them."""

import json
import re
from pathlib import Path

import pytest

from flipout.experiments.catalogue import EXPERIMENTS
from flipout.experiments.page import write_page
from tests.experiments.pages import Parsed

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = sorted(path.parent.name for path in RESULTS.glob("*/result.json"))
# What no figure shows: draws at one network, prices and times, α ≫ β ≫ γ where the figure has curves, rounding.
UNSEEN = {
    "es-backprop-convle": ["estimate the same gradient"],
    "es-backprop-fc": ["estimate the same gradient"],
    "es-discrete": ["Binary units let no gradient through", "estimate the same gradient"],
    "es-ideal": ["estimate the same gradient", "The estimate of FlipES"],
    "es-rl": ["estimate the same gradient"],
    "es-scaling": ["members have the same fitness", "At the stated prices"],
    "large-batch-convle": ["At one posterior", "By the clock"],
    "large-batch-fc": ["At one posterior", "By the clock"],
    "posterior-check": [],
    "ptb-char": ["The loss in long windows", "At the weights of"],
    "ptb-word": ["The loss in long windows", "At the weights of"],
    "theorem": ["The variance predicted"],
    "uncertainty": ["wrong answers", "The log-likelihood of test labels"],
    "variance-convgg": ["≫", r"^(?!(conv1|conv5|conv9|conv13|fc1|fc3): )\w+: "],  # the figure has six of the layers
    "variance-fc": ["≫"],
    "variance-lstm": ["≫"],
    "variance-multigpu": ["The variance predicted"],
    "variance-wd-lstm": ["≫"],
}


@pytest.mark.parametrize("name", FOLDERS)
def test_every_check_leads_to_the_figure_that_shows_it(name, tmp_path):
    held = json.loads((RESULTS / name / "result.json").read_text(encoding="utf-8"))
    config = json.loads((RESULTS / name / "config.json").read_text(encoding="utf-8"))
    write_page([RESULTS / name], tmp_path / "report.html")
    parsed = Parsed(tmp_path / "report.html")
    figures = {figure["id"]: parsed.all("b", inside=figure)[0]["text"] for figure in parsed.all("figure")}
    assert list(figures.values()) == [figure["name"] for figure in held["figures"]]
    found = {}
    for row in parsed.all("tr"):
        if "data-kind" in row:
            links = [figures[link["href"].removeprefix("#")] for link in parsed.all("a", inside=row)]
            found[parsed.all("th", inside=row)[0]["text"]] = links
    assert found.keys() == {check["claim"] for check in held["checks"]}
    for claim, links in found.items():
        rule = EXPERIMENTS[name].seen(claim, config)
        assert links == ([] if rule is None else [rule]), claim
        assert (rule is None) == any(re.search(pattern, claim) for pattern in UNSEEN[name]), claim
