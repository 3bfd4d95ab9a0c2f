"""Every registered experiment runs, leaves its files, and can be reported."""

import ast
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from shutil import rmtree

import pytest

from flipout import experiments
from flipout.experiments.cli import main
from flipout.experiments.registry import EXPERIMENTS
from flipout.experiments.running.results import MUST_HOLD, REPORTED, Check, Result, to_json
from tests.experiments.report.pages import Parsed, checks_of
from tests.experiments.toy_experiment import content

ROOT = Path(__file__).parents[2]


SOURCES = sorted(Path(experiments.__file__).parent.rglob("*.py"))


NOT_RUN = {"es-llm", "es-tuning"}  # their paper presets wait for a GPU


TOO_SMALL = {"predicted/convgg"}  # theory that only the smoke preset tries


TINY = (
    *("--preset", "smoke", "--schemes", "shared", "flipout", "--batch-sizes", "1", "8"),
    *("--draws", "3", "--pairs", "4", "--examples", "40", "--pair-batch", "8", "--pretraining.accuracy", "0.5"),
)


def check_no_place_is_named(folder: Path) -> None:
    """No file of a run names a folder of the machine."""
    places = [str(place) for place in (ROOT, folder, Path.home(), Path(tempfile.gettempdir())) if place != Path("/")]
    for path in folder.rglob("*.json*"):
        text = path.read_text(encoding="utf-8")
        assert [place for place in places if place in text] == [], path.name


def check_ids_are_those_of_the_committed_run(result: Result) -> None:
    """The committed results have no ids. The ids derived for them are the ids of today."""
    folder = ROOT / "results" / result.experiment
    assert folder.exists() == (result.experiment not in NOT_RUN)
    if result.experiment in NOT_RUN:
        return
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    known = {check.id: check for check in Result.read(folder / "result.json", config.get("shown", ())).checks}
    both = [(check, known[check.id]) for check in result.checks if check.id in known]
    assert {check.id for check, _ in both} >= {
        check.id for check in result.checks if check.kind == MUST_HOLD
    } - TOO_SMALL
    for check, committed in both:
        assert (check.kind, check.quantity) == (committed.kind, committed.quantity)
        assert check.figure == committed.figure or None in (check.figure, committed.figure)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_smoke_runs_leaves_its_files_and_is_reported(name, tmp_path, capsys):
    folder, page = tmp_path / "run", tmp_path / "report.html"
    assert main(["run", name, "--preset", "smoke", "--device", "cpu", "--out", str(folder)]) == 0
    said = capsys.readouterr().out
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "metrics.jsonl", "result.json", "environment.json", "figures", "pieces"} <= names
    assert not list(folder.rglob("*.new*"))

    held = json.loads((folder / "result.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert (held["experiment"], held["preset"]) == (name, "smoke")
    assert held["measured"]
    assert held["paper"].keys() <= held["measured"].keys()
    assert held["setting"]
    assert {check["kind"] for check in held["checks"]} == {MUST_HOLD, REPORTED}
    for check in held["checks"]:
        assert check.keys() == {*Check.__struct_fields__}
        assert check["interval"] is None or len(check["interval"]) == 2
    assert len({check["id"] for check in held["checks"]}) == len(held["checks"])
    assert all(check["quantity"] for check in held["checks"])
    result = Result.read(folder / "result.json")
    assert result.broken == []
    seen = {check.figure for check in result.checks} - {None}
    assert seen
    assert seen <= {figure.name for figure in result.figures}
    check_ids_are_those_of_the_committed_run(result)
    theory = [check.holds for check in result.checks if check.kind == "must_hold"]
    assert f"Must hold: {sum(theory)} of {len(theory)} do." in said

    assert result.figures
    for figure in result.figures:
        assert (folder / "figures" / f"{figure.name}.svg").read_text(encoding="utf-8").rstrip().endswith("</svg>")
        assert (folder / "figures" / f"{figure.name}.png").read_bytes().startswith(b"\x89PNG")
    drawn = content(folder)
    rmtree(folder / "figures")
    assert main(["report", str(folder), "--out", str(page), "--redraw"]) == 0
    assert content(folder) == drawn
    pieces = {path.stem for path in (folder / "pieces").iterdir()}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines
    assert {line["piece"].replace("/", ".") for line in lines} <= pieces
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    whole = {"experiment": name, "preset": "smoke", **asdict(EXPERIMENTS[name].presets["smoke"]), "device": "cpu"}
    assert config == json.loads(to_json(whole))
    (session,) = json.loads((folder / "environment.json").read_text(encoding="utf-8"))["sessions"]
    assert 0 < session["seconds"] < 60
    check_no_place_is_named(folder)

    assert main(["report", str(folder), "--out", str(page)]) == 0
    parsed = Parsed(page)
    rows = [row for row in parsed.all("tr") if "data-kind" in row]
    expected = {"; ".join(filter(None, (check["claim"], check["remark"]))): check for check in checks_of(folder)}
    claims = [parsed.all("th", inside=row)[0]["text"] for row in rows]
    assert sorted(claims) == sorted(expected)
    for row, claim in zip(rows, claims, strict=True):
        check = expected[claim]
        assert (row["data-kind"], row["data-holds"]) == (check["kind"], str(check["holds"]).lower())
        shown = [float(data["value"]) for data in parsed.all("data", inside=row)]
        assert shown == [number for number in check["numbers"] if number is not None]


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "es-rl"])  # its title names both environments
def test_titles_come_from_the_settings(name):
    """The settings of the paper give the paper's title, and no other settings claim its network or its data."""
    experiment = EXPERIMENTS[name]
    assert experiment.title_of(experiment.config("paper")) == experiment.title
    for preset in ("smoke", "quick"):
        for word in ("MNIST", "CIFAR", "Penn Treebank", "784", "8192", "2 × 650", "5,000"):
            assert word not in experiment.title_of(experiment.config(preset))


def test_the_seed_decides_everything(tmp_path):
    found = {}
    for name, seed in (("one", "1"), ("same", "1"), ("two", "2")):
        assert main(["run", "variance-fc", *TINY, "--seed", seed, "--out", str(tmp_path / name)]) == 0
        kept = ("result.json", "metrics.jsonl", "measurements.json", "figures/variance.svg", "figures/variance.png")
        found[name] = {file: (tmp_path / name / file).read_bytes() for file in kept}
    assert found["one"] == found["same"]
    assert all(found["one"][file] != found["two"][file] for file in found["one"])


def test_mnist_itself_where_it_is(tmp_path, real_data):
    assert main(["run", "variance-fc", *TINY, "--pretraining.data", "mnist", "--out", str(tmp_path)]) == 0
    setting = Result.read(tmp_path / "result.json").setting
    assert "MNIST" in setting
    assert "digits" not in setting
    check_no_place_is_named(tmp_path)
    assert not any(str(real_data) in path.read_text() for path in tmp_path.rglob("*.json*"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_nothing_is_pickled_or_unpickled(path):
    modules = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not {alias.name.partition(".")[0] for alias in node.names} & modules
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] not in modules
            assert node.module != "torch" or not {alias.name for alias in node.names} & {"load", "save"}
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {("torch", "load"), ("torch", "save")}
        if isinstance(node, ast.keyword):
            assert node.arg != "allow_pickle"
