"""Whatever the files of a run say, they are refused by name, or shown as text."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flipout.errors import DataError
from flipout.experiments.report.page import write_page
from flipout.experiments.running.results import Result
from tests.experiments.report.pages import CHECKS, LAYERS, Parsed, finished, seen_in

FILES = ("result.json", "config.json", "environment.json")


REFRESH = '"><meta http-equiv="refresh" content="0;url=https://example.org">'


TEXTS = (
    REFRESH,
    "javascript:alert(1)<script>alert(1)</script>",
    '\'><img src=x onerror=alert(1)>" onclick="alert(1)" href="javascript:alert(1)',
    "{0.__class__} {run.folder} &lt;b&gt;</style></title><base href=https://example.org>",
)


OTHERS = ("", "1.5e+" + "9" * 5000, None, True, -1.5, 10**400, [], [REFRESH], {REFRESH: [REFRESH]}, [[None, None]])


SAID = ("id", "href", "aria-labelledby", "aria-label", "alt", "data-label", "value", "datetime", "src")


def shape(written: Path) -> set[tuple[str, frozenset[tuple[str, str | None]]]]:
    """Return the kinds of elements in a page: tags and attributes, with values that no file decides."""
    parsed = Parsed(written)
    links = [element["href"] for element in parsed.elements if "href" in element]
    assert all(address.startswith("#") or address == "data:," for address in links)
    reader_fields = ("tag", "text", "inside")
    return {
        (
            element["tag"],
            frozenset(
                (name, None if name in SAID else value) for name, value in element.items() if name not in reader_fields
            ),
        )
        for element in parsed.elements
    }


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the paths to all values of a file; of a list, only its first and last parts."""
    yield path
    keys: Any = content if isinstance(content, dict) else ()
    if isinstance(content, list):
        keys = {0, len(content) - 1} if content else ()
    for key in keys:
        yield from places(content[key], (*path, key))


def changed(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy, (first, *rest) = content.copy(), path
    copy[first] = changed(content[first], tuple(rest), value)
    return copy


def renamed(content: Any, path: tuple[Any, ...], name: str) -> Any:
    """Replace the key at the end of a path."""
    first, *rest = path
    if rest:
        return changed(content, (first,), renamed(content[first], tuple(rest), name))
    return {name if key == first else key: value for key, value in content.items()}


@pytest.fixture
def clean(tmp_path) -> list[Path]:
    """Two runs of one experiment, whose page has every kind of element."""
    layers = {f"conv{i}: γ": f"{i}.5e-05 ± 2.0e-06" for i in range(1, 11)}
    settings = {"shown": ["fc1"], "inner": {"rate": 0.5}}
    checks = (*seen_in("variance", CHECKS), *LAYERS[:10])
    return [
        finished(tmp_path / "first", settings=settings, measured={**layers, "steps": 3}, checks=checks),
        finished(tmp_path / "second", settings={"seed": 1}),
    ]


@pytest.mark.parametrize("name", FILES)
def test_no_value_of_a_file_adds_an_element_or_an_attribute(clean, tmp_path, name):
    written, file = tmp_path / "report.html", clean[0] / name
    expected = set()
    for runs in (clean, [finished(tmp_path / "bare", "x", checks=CHECKS[1:3], measured={}, paper={})]):
        write_page(runs, written)
        expected |= shape(written)
    content = json.loads(file.read_text())
    spoilt = [(path, changed(content, path, value)) for path in places(content) for value in (*TEXTS, *OTHERS)]
    named = [path for path in places(content) if path and isinstance(path[-1], str)]
    spoilt += [(path, renamed(content, path, text)) for path in named for text in TEXTS[:2]]
    refused: list[str] = []
    for path, wrong in spoilt:
        file.write_text(json.dumps(wrong))
        try:
            write_page(clean, written)
        except DataError as error:
            refused.append(str(error))
            continue
        assert shape(written) <= expected, (path, wrong)
    assert 0 < len(refused) < len(spoilt)
    assert all(said.startswith(str(clean[0])) for said in refused)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("checks", 1, "kind"), REFRESH, r"checks\[1\]\.kind: .* found; expected 'must_hold' or 'reported'"),
        (("checks", 1, "kind"), ["reported"], r"checks\[1\]\.kind: \['reported'\] found; expected `str`"),
        (("checks", 0, "holds"), REFRESH, r"checks\[0\]\.holds: .* found; expected `bool`, got `str`"),
        (("checks", 0, "holds"), 1, r"checks\[0\]\.holds: 1 found; expected `bool`, got `int`"),
        (("checks", 0, "holds"), None, r"checks\[0\]\.holds: None found; expected `bool`, got `null`"),
        (("checks", 0, "value"), "1", r"checks\[0\]\.value: '1' found; expected `float \| null`, got `str`"),
        (("checks", 0, "value"), True, r"checks\[0\]\.value: True found; expected `float \| null`, got `bool`"),
        (("checks", 0, "value"), 10**400, r"checks\[0\]\.value: 1000.* found; number out of range"),
        (
            ("checks", 0, "interval"),
            [1.0],
            r"checks\[0\]\.interval: \[1\.0\] found; expected `array` of length 2, got 1",
        ),
        (("checks", 0, "interval"), ["a", 1], r"checks\[0\]\.interval\[0\]: 'a' found; expected `float \| null`"),
        (("checks", 0, "interval"), "ab", r"checks\[0\]\.interval: 'ab' found; expected `array \| null`, got `str`"),
        (("checks", 0, "claim"), 3, r"checks\[0\]\.claim: 3 found; expected `str`, got `int`"),
        (("checks", 0, "figure"), ["x"], r"checks\[0\]\.figure: \['x'\] found; expected `str \| null`, got `array`"),
        (("checks", 0), {"claim": "x"}, r"checks\[0\]: object missing required field `kind`"),
        (("checks", 0), {"id": "x", "more": 1}, r"checks\[0\]: object contains unknown field `more`"),
        (("checks", 0, "id"), REFRESH, r"checks\[0\]: id .* expected words without blanks"),
        (("checks", 0, "id"), 7, r"checks\[0\]\.id: 7 found; expected `str`, got `int`"),
        (("checks", 0, "quantity"), None, r"checks\[0\]\.quantity: None found; expected `str`, got `null`"),
        (("checks",), {}, r"checks: \{\} found; expected `array`, got `object`"),
        (("measured", "steps"), [3], r"measured\['steps'\]: \[3\] found; expected `int \| float \| str \| null`"),
        (("measured", "steps"), False, r"measured\['steps'\]: False found; expected .*, got `bool`"),
        (("measured", "steps"), 10**400, r"measured\[.*\]: .* found; expected `int` <= "),
        (("paper",), [], r"paper: \[\] found; expected `object`, got `array`"),
        (("title",), {"x": 1}, r"title: .* found; expected `str`, got `object`"),
        (("more",), 1, r"the file: object contains unknown field `more`; expected experiment, preset"),
        (("figures", 0, "name"), "../../secret", r"figures\[0\]: .*'\.\./\.\./secret'.*expected a file name"),
        (("figures", 0, "name"), "layers", r"figure 'layers' is named twice"),
    ],
)
def test_what_no_result_says_is_refused_by_its_field(clean, path, value, says):
    file = clean[0] / "result.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps(changed({**content, "more": 0} if path == ("more",) else content, path, value)))
    with pytest.raises(DataError, match=f"(?s)not the result of a run.*{says}.*--resume") as caught:
        Result.read(file)
    assert str(caught.value).startswith(str(file))
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("device",), ["H200"], r"device: \['H200'\] found; expected `str`, got `array`"),
        (("sessions",), [], r"sessions: \[\] found; expected `array` of length >= 1"),
        (
            ("sessions", 0, "started"),
            "today",
            r"sessions\[0\]\.started: 'today' found; invalid RFC3339 encoded datetime",
        ),
        (("sessions", 1, "seconds"), "9", r"sessions\[1\]\.seconds: '9' found; expected `float`, got `str`"),
        (("sessions", 1, "seconds"), -1, r"sessions\[1\]\.seconds: -1 found; expected `float` >= 0"),
        (("commit",), 3, r"commit: 3 found; expected `str \| null`, got `int`"),
    ],
)
def test_what_no_environment_says_is_refused_by_its_field(clean, tmp_path, path, value, says):
    file = clean[0] / "environment.json"
    file.write_text(json.dumps(changed(json.loads(file.read_text()), path, value)))
    with pytest.raises(DataError, match=f"(?s)what the run cost.*{says}"):
        write_page(clean, tmp_path / "report.html")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": "\\ud800"}', "[" * 100_000, '{"a": ' + "9" * 5000 + "}", "\xff"])
def test_files_that_are_no_plain_json_are_refused(clean, tmp_path, name, text):
    (clean[0] / name).write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError) as caught:
        write_page(clean, tmp_path / "report.html")
    assert str(caught.value).startswith(str(clean[0] / name))


def test_settings_that_a_rule_cannot_read_are_refused(clean, tmp_path):
    file = clean[0] / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "shown": 3}))
    result = json.loads((clean[0] / "result.json").read_text())
    del result["checks"][0]["id"]  # as in older files: the settings of the run decide which figure shows it
    (clean[0] / "result.json").write_text(json.dumps(result))
    with pytest.raises(DataError, match=r"config\.json.*shown: 3 found; expected `array \| null`, got `int`"):
        write_page(clean, tmp_path / "report.html")


def test_a_figure_is_a_file_of_the_run_and_nothing_but_an_image(clean, tmp_path):
    """Scripts in an SVG do not run in an <img>; a link out of the folder would publish what it leads to."""
    image = clean[0] / "figures" / "layers.svg"
    image.write_text(f"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>{REFRESH}")
    write_page(clean, tmp_path / "report.html")
    parsed = Parsed(tmp_path / "report.html")
    assert not parsed.all("script", "svg")
    assert all(re.fullmatch(r"data:image/svg\+xml;base64,[A-Za-z0-9+/=]*", image["src"]) for image in parsed.all("img"))
    (tmp_path / "secret.svg").write_text("secret")
    image.unlink()
    image.symlink_to(tmp_path / "secret.svg")
    with pytest.raises(DataError, match=r"layers\.svg leads out of the folder of the run"):
        write_page(clean, tmp_path / "report.html")


def test_the_name_of_a_folder_is_text(clean, tmp_path):
    write_page(clean, tmp_path / "report.html")
    expected = shape(tmp_path / "report.html")
    folder = clean[0].rename(clean[0].with_name("'\"><script>alert(1)<"))
    write_page([folder, clean[1]], tmp_path / "report.html")
    assert shape(tmp_path / "report.html") <= expected
