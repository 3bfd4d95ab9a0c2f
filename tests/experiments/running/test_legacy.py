"""Result files without ids: each of their checks gets the id and the quantity of today.

Such files are the committed results that were not judged again since, and old_results/, copies of the others.
"""

import json
from pathlib import Path

import pytest

from flipout.experiments.running.legacy import RULES, with_ids
from flipout.experiments.running.results import Result

RESULTS = {path.parent.name: path for path in (Path(__file__).parents[3] / "results").glob("*/result.json")}
OLD = RESULTS | {path.stem: path for path in (Path(__file__).parent / "old_results").glob("*.json")}


def old(claim: str, experiment: str = "variance-fc") -> dict:
    return {
        "experiment": experiment,
        "checks": [{"claim": claim, "kind": "reported", "value": 1.0, "interval": None, "holds": True}],
        "figures": [{"name": "variance", "caption": ""}],
    }


@pytest.mark.parametrize("name", RULES)
def test_every_sentence_of_an_old_result_has_a_rule(name):
    path = OLD[name]
    content = json.loads(path.read_text(encoding="utf-8"))
    assert not any("id" in check for check in content["checks"])
    result = Result.read(path)
    assert [check.statement for check in result.checks] == [check["claim"] for check in content["checks"]]
    assert "value" not in {check.quantity for check in result.checks}  # of a sentence that no rule knows
    assert not any("{" in text for check in result.checks for text in (check.id, check.quantity, check.figure or ""))


NEW_ROWS = {"es-rl": ["learned-rank_one", "mean-return-rank_one", "end-return-rank_one"]}


@pytest.mark.parametrize("name", sorted(path.stem for path in OLD.values() if path.parent.name == "old_results"))
def test_a_result_that_was_judged_again_has_the_ids_of_its_old_file(name):
    """Except for the claim that changed, the knee of shared instead of its floor, and for rows that were added."""
    old_ids, ids = ([check.id for check in Result.read(path).checks] for path in (OLD[name], RESULTS[name]))
    expected = [check.replace("floor/", "knee/") for check in old_ids] + NEW_ROWS.get(name, [])
    assert sorted(expected) == sorted(ids)


def test_only_the_layers_in_the_figure_lead_to_it():
    content = old("conv2: the log-log slope of flipout over N = 1 … 8192 is −1 (to 0.05)")
    for shown, figure in (((), "variance"), (("conv2",), "variance"), (("conv1",), None)):
        (check,) = with_ids(content, shown)["checks"]
        assert (check["id"], check["quantity"], check["figure"]) == ("slope/conv2", "slope of flipout", figure)


def test_a_remark_is_taken_off_and_a_bracket_is_not():
    (check,) = with_ids(old("x is below y (in points; the paper: 3); one seed, so no interval"), ())["checks"]
    assert (check["claim"], check["remark"]) == ("x is below y (in points; the paper: 3)", "one seed, so no interval")


def test_sentences_that_no_rule_knows_have_ids_of_their_own():
    content = old("Something / else: entirely!", "of somebody")
    content["checks"] *= 2
    assert [check["id"] for check in with_ids(content, ())["checks"]] == [
        "something-else-entirely",
        "something-else-entirely-2",
    ]


def test_a_file_with_ids_stays_as_it_is():
    content = old("conv2: α ≫ β ≫ γ (…)")
    content["checks"][0]["id"] = "mine"
    assert with_ids(content, ()) == content


@pytest.mark.parametrize("content", [None, [], {"checks": 3}, {"checks": [3, {"claim": 4}], "figures": 5}])
def test_what_is_no_result_is_left_to_the_reader(content):
    assert with_ids(content, ()) == content
