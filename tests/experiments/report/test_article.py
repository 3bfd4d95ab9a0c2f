"""A run in the report: its numbers, checks and figures, and the links between them."""

import json

from msgspec.structs import replace

from flipout.experiments.report.page import write_page
from flipout.experiments.running.results import Check
from tests.experiments.report.pages import CHECKS, LAYERS, WORD, Parsed, checks_of, finished, seen_in


def test_the_checks_are_those_of_the_result(page):
    parsed = Parsed(page)
    rows = [row for row in parsed.all("tr") if "data-kind" in row]
    expected = checks_of(page.parent / "variance-fc-quick")
    assert len(rows) == len(expected) == 4
    for row, check in zip(rows, expected, strict=True):
        claim, kind, _, interval, holds = (cell["text"] for cell in parsed.all("th", "td", inside=row))
        assert (claim, kind) == (check["claim"], check["kind"].replace("_", " "))
        assert [float(data["value"]) for data in parsed.all("data", inside=row)] == check["numbers"]
        assert (interval == "–") == (check["interval"] is None)
        assert holds == ("✓ holds" if check["holds"] else "✗ does not hold")
        assert (row["data-kind"], row["data-holds"]) == (check["kind"], str(check["holds"]).lower())


def test_the_numbers_stand_beside_the_papers(page):
    parsed = Parsed(page)
    table = next(table for table in parsed.all("table") if table["class"] == "numbers")
    cells = [[cell["text"] for cell in parsed.all("th", "td", inside=row)] for row in parsed.all("tr", inside=table)]
    assert cells == [
        ["quantity", "paper", "ours"],
        ["slope of flipout", "≈ −1", "−0.9873"],
        ["floor of shared", "–", "3.841\u202f×\u202f10−7"],
        ["data", "–", "digits"],
        [WORD, "–", WORD],
        ["epochs", "50", "–"],
    ]


def test_a_run_with_nothing_to_show_and_values_that_are_not_finite(tmp_path):
    bare = finished(tmp_path / "bare", measured={}, paper={}, checks=(), figures=())
    endless = Check("endless", "one repeat", "reported", "time", float("inf"), (float("-inf"), float("inf")), True)
    above, below = (
        Check(name, "one-sided", "reported", "ratio", 0.7, ends, True)
        for name, ends in (("above", (0.5, None)), ("below", (None, 0.9)))
    )
    write_page([bare, finished(tmp_path / "endless", checks=(endless, above, below))], tmp_path / "report.html")
    parsed = Parsed(tmp_path / "report.html")
    cells = [cell["text"] for cell in parsed.all("td", inside=parsed.all("tr")[1])]
    assert cells[1:3] == ["–", "–"]
    assert not parsed.all("table", "figure", inside=parsed.all("article")[0])
    first, *rest = [row["text"] for row in parsed.all("tr") if "data-kind" in row]
    assert "not finite–" in first
    assert "above 0.5" in rest[0]
    assert "below 0.9" in rest[1]


def test_checks_lead_to_their_figures_and_back(tmp_path):
    checks = (*seen_in("layers", CHECKS[:2]), *seen_in("no figure of this run", CHECKS[2:3]), CHECKS[3])
    write_page([finished(tmp_path / "run", checks=checks)], tmp_path / "report.html")
    parsed = Parsed(tmp_path / "report.html")
    figures = parsed.all("figure")
    rows = {row["id"]: row for row in parsed.all("tr") if "data-kind" in row}
    ways = {parsed.all("th", inside=row)[0]["text"]: parsed.all("a", inside=row) for row in rows.values()}
    for check in checks:
        expected = [(f"#{figures[1]['id']}", "layers")] if check.figure == "layers" else []
        assert [(link["href"], link["text"]) for link in ways[check.claim]] == expected
    assert not parsed.all("a", inside=figures[0])
    (seen,) = parsed.all("details", inside=figures[1])
    assert parsed.all("summary", inside=seen)[0]["text"] == "Checks shown here 1 of 2 hold"
    back = parsed.all("a", inside=seen)
    for link in back:
        assert parsed.all("th", inside=rows[link["href"][1:]])[0]["text"] == link["text"]
    assert {link["text"] for link in back} == {check.claim for check in checks[:2]}


def test_a_result_that_does_not_say_leads_to_the_figures_of_the_run(page):
    parsed = Parsed(page)
    (note,) = [note for note in parsed.all("p") if "Figures of this run" in note["text"]]
    assert [link["href"][1:] for link in parsed.all("a", inside=note)] == [
        figure["id"] for figure in parsed.all("figure")
    ]
    assert not [cell for cell in parsed.all("th") if cell["text"] == "figure"]
    assert not parsed.all("details", inside=parsed.all("figure")[0])


def test_what_is_said_of_many_layers_folds(tmp_path):
    kept = {f"fc{i}: slope": 1.5 for i in range(9)}
    many = {f"conv{i}: slope of flipout": -0.5 * i for i in range(10)}
    paper = dict.fromkeys(many, -1)
    folder = finished(tmp_path / "run", measured={**kept, **many}, paper=paper, checks=(CHECKS[0], *LAYERS))
    write_page([folder], tmp_path / "report.html")
    parsed = Parsed(tmp_path / "report.html")
    numbers, checks = (details for details in parsed.all("details") if details.get("class") == "family")
    assert parsed.all("summary", inside=numbers)[0]["text"] == "slope of flipout 10 numbers"
    assert [head["text"] for head in parsed.all("th", inside=numbers)[3:]] == list(many)
    assert parsed.all("summary", inside=checks)[0]["text"] == "slope of flipout 11 of 12 hold"
    assert len([row for row in parsed.all("tr", inside=checks) if "data-kind" in row]) == 12
    open_rows = [row for row in parsed.all("tr") if "details" not in [outer["tag"] for outer in row["inside"]]]
    assert len(open_rows) == 2 + 1 + 9 + 1 + 1
    assert "open" not in checks


def test_a_broken_claim_is_not_folded_away(tmp_path):
    theory = [replace(check, kind="must_hold") for check in LAYERS]
    for checks, is_open in ((theory, True), ([check for check in theory if check.holds], False)):
        write_page([finished(tmp_path / str(is_open), checks=checks)], tmp_path / "report.html")
        (family,) = [
            details for details in Parsed(tmp_path / "report.html").all("details") if details.get("class") == "family"
        ]
        assert ("open" in family) == is_open


def test_sessions_of_several_commits_and_one_that_was_stopped(tmp_path):
    folder = finished(tmp_path / "run")
    path = folder / "environment.json"
    held = json.loads(path.read_text())
    write_page([folder], tmp_path / "before.html")
    for session, commit in zip(held["sessions"], ("abc1234", "def5678"), strict=True):
        session.update(commit=commit, finished=commit == "abc1234")
    path.write_text(json.dumps(held))
    write_page([folder], tmp_path / "after.html")
    before, after = ((tmp_path / f"{name}.html").read_text(encoding="utf-8") for name in ("before", "after"))
    assert "The last one was stopped" not in before
    assert "The last one was stopped: this page lacks what it added." in after
    assert "abc1234, def5678" in after


def test_a_smoke_run_is_too_small_to_refute_the_paper_but_not_theory(tmp_path):
    for preset, expected in (("quick", "✗ does not hold"), ("smoke", "– too small to judge")):
        write_page([finished(tmp_path / preset, preset=preset)], tmp_path / "report.html")
        parsed = Parsed(tmp_path / "report.html")
        verdicts = {
            parsed.all("th", inside=row)[0]["text"]: parsed.all("td", inside=row)[-1]["text"]
            for row in parsed.all("tr")
            if "data-kind" in row
        }
        assert verdicts[CHECKS[0].claim] == expected
        assert verdicts[CHECKS[2].claim] == "✓ holds"
        assert verdicts[CHECKS[3].claim] == "✗ does not hold"
