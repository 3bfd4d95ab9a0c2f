"""Only a finished run is shown; anything else is refused by name."""

from pathlib import Path

import pytest

from flipout.errors import DataError
from flipout.experiments.report.page import write_page
from tests.experiments.report.pages import finished


def no_folder(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def a_file(folder: Path) -> None:
    no_folder(folder)
    folder.write_text("")


@pytest.mark.parametrize(
    ("spoil", "named", "says"),
    [
        (no_folder, "", "does not exist. Give the folder of a finished run"),
        (a_file, "", "is a file"),
        (lambda f: (f / "config.json").unlink(), "", "is not a run"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json", "expected `object`, got `array`"),
        (lambda f: (f / "result.json").unlink(), "", "unfinished.*`flipout run variance-fc ... --resume`"),
        (lambda f: (f / "result.json").write_text('{"experiment"'), "result.json", "not the result of a run"),
        (lambda f: (f / "environment.json").unlink(), "environment.json", "FileNotFoundError"),
        (lambda f: (f / "environment.json").write_text("{}"), "environment.json", "what the run cost.*device"),
        (
            lambda f: (f / "figures" / "layers.svg").unlink(),
            "figures/layers.svg",
            "flipout report .*bad --redraw",
        ),
    ],
)
def test_what_is_not_a_finished_run_is_refused_and_no_page_is_left(tmp_path, spoil, named, says):
    good, bad = finished(tmp_path / "good"), finished(tmp_path / "bad")
    spoil(bad)
    with pytest.raises(DataError, match=f"(?s){says}") as caught:
        write_page([good, bad], tmp_path / "report.html")
    assert str(caught.value).startswith(str(bad / named))
    assert not list(tmp_path.glob("report.html*"))
