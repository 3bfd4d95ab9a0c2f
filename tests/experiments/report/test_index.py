"""The head of the report: a line for each run, and the claims that must hold and do not."""

from flipout.experiments.report.page import write_page
from tests.experiments.report.pages import CHECKS, Parsed, finished


def test_a_line_for_each_run(several):
    parsed = Parsed(several)
    table = parsed.all("table", inside=parsed.all("nav")[0])[0]
    head, *rows = parsed.all("tr", inside=table)
    columns = ["experiment", "preset", "must hold", "reported", "device", "time", "date"]
    assert [cell["text"] for cell in parsed.all("th", inside=head)] == columns
    title = "Figure 2: the variance of the gradient"
    cost = ["NVIDIA H200", "2\N{NO-BREAK SPACE}min 3\N{NO-BREAK SPACE}s", "2026-11-15"]
    assert [[cell["text"] for cell in parsed.all("th", "td", inside=row)] for row in rows] == [
        [f"variance-fc · results/variance-fc {title}", "quick", "✗ 1 of 2", "12 of 14", *cost],
        [f"variance-fc · runs/variance-fc {title}", "quick", "1 of 1", "11 of 13", *cost],
        [f"variance-fc · long {title}", "quick", "✗ 1 of 2", "1 of 2", *cost],
        [f"theorem {title}", "quick", "✗ 1 of 2", "1 of 2", *cost],
    ]
    links = [link["href"] for link in parsed.all("a", inside=table)]
    assert links == [f"#{article['id']}" for article in parsed.all("article")]
    lead = next(paragraph for paragraph in parsed.all("p") if paragraph.get("class") == "lead")
    assert lead["text"] == (
        "4 runs of 2 experiments. Of the claims that must hold, 4 of 7 hold. Of the claims that are reported, "
        "25 of 31 hold."
    )


def test_a_broken_claim_is_loud_and_the_cost_is_the_sum(page, tmp_path):
    parsed = Parsed(page)
    (alarm,) = [section for section in parsed.all("section") if section["class"] == "broken"]
    assert "1 claim that must hold does not" in alarm["text"]
    assert CHECKS[3].claim in alarm["text"]
    (link,) = parsed.all("a", inside=alarm)
    (row,) = [row for row in parsed.all("tr") if f"#{row.get('id')}" == link["href"]]
    assert CHECKS[3].claim in row["text"]
    assert (
        "2\N{NO-BREAK SPACE}min 3\N{NO-BREAK SPACE}s on NVIDIA H200, in 2 sessions" in parsed.all("article")[0]["text"]
    )
    write_page([finished(tmp_path / "calm", checks=CHECKS[:3])], page)
    assert not Parsed(page).all("section")


def test_runs_of_one_experiment_keep_their_own_anchors(tmp_path):
    names = ("variance fc", "variance-fc", "variance-fc-2", "checks", "title-variance-fc")
    folders = [finished(tmp_path / str(i), name) for i, name in enumerate(names)]
    write_page([*folders, folders[0]], tmp_path / "report.html")
    parsed = Parsed(tmp_path / "report.html")
    ids = [element["id"] for element in parsed.elements if "id" in element]
    assert len(ids) == len(set(ids))
    anchors = [article["id"] for article in parsed.all("article")]
    links = [link["href"] for link in parsed.all("a", inside=parsed.all("table")[0])]
    assert links == [f"#{anchor}" for anchor in anchors]
    assert len(anchors) == 6
    assert "Contents" in [heading["text"] for heading in parsed.all("h2")]
