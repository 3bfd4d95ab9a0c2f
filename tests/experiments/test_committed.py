"""The committed results: checks lead to their figures, which can be drawn again if their data is committed."""

import json
import re
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from flipout.experiments.cli import main
from flipout.experiments.report.page import write_page
from flipout.experiments.running.results import Result
from tests.experiments.report.pages import Parsed
from tests.experiments.toy_experiment import content

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = sorted(path.parent.name for path in RESULTS.glob("*/result.json"))
# Checks that no figure shows: draws at one network, prices and times, α ≫ β ≫ γ where the figure has curves, rounding.
UNSEEN = {
    "es-backprop-convle": ["same-gradient"],
    "es-backprop-fc": ["same-gradient"],
    "es-discrete": ["no-gradient", "same-gradient-.*"],
    "es-ideal": ["same-gradient", "variance-.*"],
    "es-rl": ["same-gradient"],
    "es-scaling": ["same-fitness", "cheaper"],
    "large-batch-convle": ["same-loss", "loss-variance", "by-the-clock"],
    "large-batch-fc": ["same-loss", "loss-variance", "by-the-clock"],
    "posterior-check": [],
    "ptb-char": ["long-windows", "same-loss", "loss-variance"],
    "ptb-large-batch": ["long-windows", "same-loss", "loss-variance"],
    "ptb-word": ["long-windows", "same-loss", "loss-variance"],
    "theorem": ["predicted/fc"],
    "uncertainty": ["wrong-answers", "log-likelihood"],
    # The figure has six of the layers.
    "variance-convgg": ["orders/.*", r"(slope|floor)/(?!(conv1|conv5|conv9|conv13|fc1|fc3)$).*"],
    "variance-fc": ["orders/.*"],
    "variance-lstm": ["orders/.*"],
    "variance-multigpu": ["predicted"],
    "variance-wd-lstm": ["orders/.*"],
}
# Experiments whose pieces are not committed, with the first file that is missing.
NOT_HELD = {
    "es-rl": "FlipES.0.json",
    "es-scaling": "cores.json",
    "large-batch-convle": "shared.0.json",
    "large-batch-fc": "shared.0.json",
    "posterior-check": "shared.safetensors",
    "uncertainty": "known.safetensors",
}


@pytest.mark.parametrize("name", FOLDERS)
def test_every_check_leads_to_the_figure_that_shows_it(name, tmp_path):
    config = json.loads((RESULTS / name / "config.json").read_text(encoding="utf-8"))
    result = Result.read(RESULTS / name / "result.json", config.get("shown", ()))
    write_page([RESULTS / name], tmp_path / "report.html")
    parsed = Parsed(tmp_path / "report.html")
    figures = {figure["id"]: parsed.all("b", inside=figure)[0]["text"] for figure in parsed.all("figure")}
    assert list(figures.values()) == [figure.name for figure in result.figures]
    found = {}
    for row in parsed.all("tr"):
        if "data-kind" in row:
            links = [figures[link["href"].removeprefix("#")] for link in parsed.all("a", inside=row)]
            found[parsed.all("th", inside=row)[0]["text"]] = links
    assert found.keys() == {check.statement for check in result.checks}
    for check in result.checks:
        assert found[check.statement] == ([] if check.figure is None else [check.figure]), check.id
        assert (check.figure is None) == any(re.fullmatch(pattern, check.id) for pattern in UNSEEN[name]), check.id


def places(svg: bytes) -> list[float]:
    """Return the coordinates of what is drawn inside axes, without text, whose outlines depend on the font."""
    found = re.findall(rb'<path d="([^"]*)" clip-path', svg)
    for markers in re.findall(rb"(?s)<g clip-path[^>]*>(.*?)</g>", svg):
        found += re.findall(rb' [xy]="([^"]*)"', markers)
    return [float(number) for match in found for number in re.findall(rb"-?\d+\.?\d*", match)]


@pytest.mark.parametrize("name", [name for name in FOLDERS if name not in NOT_HELD])
def test_figures_are_drawn_again_from_committed_data(name, tmp_path):
    folder = copytree(RESULTS / name, tmp_path / name)
    rmtree(folder / "figures")
    assert main(["report", str(folder), "--out", str(tmp_path / "report.html"), "--redraw"]) == 0
    before, after = content(RESULTS / name), content(folder)
    assert before.keys() == after.keys()
    for file, held in before.items():
        if file.endswith(".svg"):
            assert places(held)
            assert places(after[file]) == pytest.approx(places(held), abs=0.5)  # points, of 1/72 inch
        elif not file.endswith(".png"):
            assert after[file] == held


@pytest.mark.parametrize("name", NOT_HELD)
def test_figures_whose_data_is_not_held_are_refused_and_kept(name, tmp_path, capsys):
    folder = copytree(RESULTS / name, tmp_path / name)
    assert main(["report", str(folder), "--out", str(tmp_path / "report.html"), "--redraw"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"flipout report: {folder / 'pieces' / NOT_HELD[name]} is not there")
    assert "cannot be drawn again" in said
    assert content(folder) == content(RESULTS / name)
    assert not (tmp_path / "report.html").exists()


def test_flipout_against_wd_is_quoted_as_it_was_found():
    """README and its page quote the committed run for the one comparison whose outcome is not the paper's."""
    checks = {check.id: check for check in Result.read(RESULTS / "ptb-word" / "result.json").checks}
    for page, digits in (("README.md", 1), ("docs/language-models.md", 2)):
        text = (RESULTS.parent / page).read_text(encoding="utf-8")
        for decoder in ("untied", "tied"):
            check = checks[f"test-below-{decoder}"]
            assert check.value is not None
            assert check.interval is not None
            ends = (check.value, *check.interval)
            value, low, high = (f"{x:.{digits}f}".replace("-", "−") for x in ends)
            assert re.search(rf"{value}[^.|]*\((90 % interval )?{low} … {high}", text), (page, decoder)
