"""Result files without ids: each check of a committed result gets the id and the quantity of today."""

import json
from pathlib import Path

import pytest

from flipout.experiments.running.legacy import RULES, with_ids
from flipout.experiments.running.results import Result

RESULTS = sorted((Path(__file__).parents[3] / "results").glob("*/result.json"))


def old(claim: str, experiment: str = "variance-fc") -> dict:
    return {
        "experiment": experiment,
        "checks": [{"claim": claim, "kind": "reported", "value": 1.0, "interval": None, "holds": True}],
        "figures": [{"name": "variance", "caption": ""}],
    }


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.parent.name)
def test_every_sentence_of_a_committed_result_has_a_rule(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    assert not any("id" in check for check in content["checks"])
    result = Result.read(path)
    assert [check.statement for check in result.checks] == [check["claim"] for check in content["checks"]]
    assert "value" not in {check.quantity for check in result.checks}  # of a sentence that no rule knows
    assert not any("{" in text for check in result.checks for text in (check.id, check.quantity, check.figure or ""))


def test_there_is_a_committed_result_for_every_rule():
    assert {path.parent.name for path in RESULTS} == RULES.keys()


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
