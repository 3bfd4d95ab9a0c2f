"""The live page: it asks for the next moment until the run is finished, says what is wrong, and shows the curves."""

from dataclasses import replace

from flipout._drawing import COLOURS, DARK
from flipout.experiments.live.page import MOST_PLOTS, REFRESH, live_page
from flipout.experiments.live.state import State

STATE = State("toy · smoke", ("a", "b"), {"loss": {"shared.0": [(0.0, 1.0), (1.0, 0.5)]}}, False, 3.0, ())


def test_a_run_that_goes_on():
    page = live_page(STATE)
    assert f'<meta http-equiv="refresh" content="{REFRESH}">' in page
    assert "2 pieces of work finished. The last change was 3\N{NO-BREAK SPACE}s ago." in page
    assert page.count("<polyline") == 1
    assert "http://" not in page
    assert "https://" not in page


def test_curves_have_their_colours_for_a_dark_page():
    (rules,) = live_page(STATE).split("@media (prefers-color-scheme: dark) {\n")[-1:]
    for attribute in ("stroke", "fill"):
        assert f'[{attribute}="{COLOURS["shared"]}"] {{ {attribute}: {DARK[COLOURS["shared"]]}; }}' in rules


def test_a_finished_run_is_not_asked_again():
    page = live_page(replace(STATE, is_finished=True))
    assert 'http-equiv="refresh"' not in page
    assert "Finished, with 2 pieces of work" in page


def test_nothing_yet():
    assert "No metrics were logged yet." in live_page(replace(STATE, curves={}, quiet=None))


def test_problems_are_said_and_escaped():
    page = live_page(replace(STATE, name="<b>", problems=("config.json cannot be <read>.",)))
    assert "config.json cannot be &lt;read&gt;." in page
    assert "<b>" not in page.replace("<b>loss</b>", "")


def test_many_metrics():
    page = live_page(replace(STATE, curves={f"m{i}": {"a": [(0.0, 1.0)]} for i in range(MOST_PLOTS + 2)}))
    assert page.count("<figure") == MOST_PLOTS
    assert "And 2 more metrics." in page
