"""Tables for notebooks: what the printed table says, escaped, without colours of their own."""

import re
from typing import Any
from xml.etree import ElementTree

import torch
from torch import nn

import flipout
from flipout._html import html_table
from flipout.bayes import Prediction
from flipout.variance import Measurements, Record
from tests.networks import mlp


def rows_of(html: str) -> list[list[str]]:
    """Return the text of the cells. The markup must be well-formed."""
    return [["".join(cell.itertext()) for cell in row] for row in ElementTree.fromstring(html).iter("tr")]


def html_of(shown: Any) -> str:
    return shown._repr_html_()


def test_numbers_are_aligned_to_the_right_and_words_to_the_left() -> None:
    html = html_table("title", {"name": ["a", "b"], "value": ["1", "nan"]}, ["note"])
    assert rows_of(html) == [["name", "value"], ["a", "1"], ["b", "nan"]]
    cells = [cell for cell in ElementTree.fromstring(html).iter() if cell.tag in ("th", "td")]
    assert ["right" in cell.attrib["style"] for cell in cells] == [False, True] * 3
    assert [p.text for p in ElementTree.fromstring(html).iter("p")] == ["title", "note"]


def test_every_text_is_escaped() -> None:
    evil = '<script>alert("1")</script>&'
    html = html_table(evil, {evil: [evil]}, [evil])
    assert "<script" not in html
    assert rows_of(html) == [[evil], [evil]]
    model = nn.Sequential()
    model.add_module("<b onclick='x'>", nn.Linear(2, 2))
    html = html_of(flipout.summary(flipout.perturb(model, flipout.Gaussian(0.1))))
    assert "<b" not in re.sub("<(body|br)>", "", html)
    assert rows_of(html)[1][0] == "<b onclick='x'>.weight"
    record = Record(evil, evil, 8, 0.5, 0.1, 0.4, 0.6, 10, 5)
    assert "<script" not in html_of(Measurements([record]))


def test_it_loads_nothing_and_sets_no_colour_of_text_or_background() -> None:
    html = html_of(flipout.summary(flipout.perturb(mlp(), flipout.Gaussian(0.5))))
    assert not re.search(r"https?:|<(script|style|img|link)|[ ;\"]color:|background", html)


def test_a_summary_shows_what_it_prints() -> None:
    for noise in (flipout.Gaussian(0.5), flipout.MeanField(prior=flipout.bayes.Normal())):
        summary = flipout.summary(flipout.perturb(mlp(), noise))
        printed, html = str(summary), html_of(summary)
        assert rows_of(html)[0] == printed.splitlines()[0].split()
        for row in rows_of(html):
            assert all(cell in printed for cell in row)
        assert printed.splitlines()[-1] in html


def test_a_prediction_shows_what_it_prints() -> None:
    prediction = Prediction.from_outputs(torch.zeros(2, 9, 3), "categorical")
    html = html_of(prediction)
    assert rows_of(html)[0] == ["input", "class", "probability", "90 % set", "entropy", "noise", "weights"]
    assert rows_of(html)[1] == ["0", "0", "0.3333", "{0, 1, 2}", "1.099", "1.099", "0"]
    assert "… and 4 more" in html
    assert len(rows_of(html)) == 6
    assert repr(prediction).splitlines()[0] in html


def test_measurements_show_their_first_records() -> None:
    records = [Record("fc.weight", "flipout", 2**i, 0.5**i, 0.01, 0.4, 0.61234, 10, 5) for i in range(30)]
    html = html_of(Measurements(records))
    assert rows_of(html)[:2] == [
        ["parameter", "scheme", "batch size", "variance", "90 % interval"],
        ["fc.weight", "flipout", "1", "1", "0.4 to 0.6123"],
    ]
    assert len(rows_of(html)) == 25
    assert "… and 6 more" in html
    assert rows_of(html_of(Measurements([])))[1:] == []
