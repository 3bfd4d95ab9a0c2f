"""The state of a run is read whatever its files hold, and what cannot be read is said."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipout.experiments.live import state
from flipout.experiments.live.page import live_page
from flipout.experiments.live.state import read_state


def write(folder: Path, *lines: object) -> Path:
    (folder / "config.json").write_text(json.dumps({"experiment": "toy", "preset": "smoke", "seed": 0}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_run_that_goes_on(tmp_path):
    write(tmp_path, *({"piece": "shared.0", "step": step, "loss": 1 / (step + 1)} for step in range(5)))
    (tmp_path / "pieces").mkdir()
    for name in ("a.json", "b.safetensors", "c.unfinished.safetensors", "d.json.new"):
        (tmp_path / "pieces" / name).touch()
    found = read_state(tmp_path)
    assert (found.name, found.is_finished, found.problems) == ("toy · smoke", False, ())
    assert found.finished_pieces == ("a", "b")
    assert found.curves == {"loss": {"shared.0": [(float(step), 1 / (step + 1)) for step in range(5)]}}
    assert found.quiet is not None
    assert found.quiet < 60
    (tmp_path / "result.json").touch()
    assert read_state(tmp_path).is_finished


def test_pieces_of_one_point_are_one_curve(tmp_path):
    sizes = (1, 4, 16)
    write(tmp_path, *({"piece": f"variance.flipout.{size}", "step": size, "fc1": 1 / size} for size in reversed(sizes)))
    assert read_state(tmp_path).curves == {"fc1": {"variance.flipout": [(float(n), 1 / n) for n in sizes]}}


def test_seeds_stay_apart(tmp_path):
    write(tmp_path, *({"piece": f"shared.{seed}", "step": step, "loss": 1.0} for seed in (0, 1) for step in (0, 1)))
    assert [*read_state(tmp_path).curves["loss"]] == ["shared.0", "shared.1"]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[1]",
        b"null",
        b'{"step": 1}',
        b'{"piece": 1, "step": 1}',
        b'{"piece": "a", "step": "b"}',
        b"\xff",
        b'{"piece": "\xff", "step": 1}',
        b'{"\xff": 1}',
        b"[" * 9999,
    ],
    ids=lambda line: line[:20].decode("latin-1"),
)
def test_broken_lines_are_left_out_and_counted(tmp_path, line):
    good = {"piece": "a", "step": 1, "loss": 2.0}
    write(tmp_path, good)
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(line + b"\n" + json.dumps({**good, "step": 2}).encode() + b"\n")
    found = read_state(tmp_path)
    assert found.curves == {"loss": {"a": [(1.0, 2.0), (2.0, 2.0)]}}
    assert found.problems == ("metrics.jsonl: 1 of its lines are no metrics, and left out.",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"experiment": "\xff"}', "can't decode byte 0xff"),
        (b'{"\xff": 1}', "can't decode byte 0xff"),
        (b"[1]", "the file: [1] found; expected `object`, got `array`"),
        (b"[" * 9999, "it is nested too deeply"),
    ],
    ids=["text", "key", "list", "nested"],
)
def test_a_broken_config_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    write(tmp_path)
    (tmp_path / "config.json").write_bytes(content)
    found = read_state(tmp_path)
    assert found.name == tmp_path.name
    (problem,) = found.problems
    assert problem.startswith("config.json cannot be read (")
    assert said in problem


def test_a_folder_whose_name_is_no_unicode(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"run \xff")
    folder.mkdir()
    assert "run \\udcff" in live_page(read_state(folder)).encode().decode()


def test_a_half_written_last_line_is_no_problem(tmp_path):
    write(tmp_path, {"piece": "a", "step": 1, "loss": 2.0})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"piece": "a", "st')
    assert read_state(tmp_path).problems == ()


def test_values_that_are_no_finite_numbers_are_left_out(tmp_path):
    write(tmp_path, {"piece": "a", "step": 1, "a": None, "b": "x", "c": True, "d": [1], "e": 10**400, "f": 1.0})
    assert [*read_state(tmp_path).curves] == ["f"]


def test_links_pipes_and_folders_are_not_opened(tmp_path):
    write(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text('{"piece": "a", "step": 1, "secret": 1.0}\n')
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").mkdir()
    (run / "metrics.jsonl").symlink_to(secret)
    os.mkfifo(run / "result.json")
    found = read_state(run)
    assert (found.curves, found.is_finished) == ({}, False)
    assert found.problems == (
        "config.json cannot be read (Is a directory).",
        "metrics.jsonl cannot be read (it is a link; expected the file itself).",
    )


def test_only_the_end_of_long_metrics_is_read(tmp_path, monkeypatch):
    write(tmp_path, *({"piece": "a", "step": step, "loss": 1.0} for step in range(1000)))
    monkeypatch.setattr(state, "MOST_BYTES", 2000)
    points = read_state(tmp_path).curves["loss"]["a"]
    assert 30 < len(points) < 60
    assert points[-1] == (999.0, 1.0)
    assert read_state(tmp_path).problems == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
LINE = JSON.map(lambda content: json.dumps(content).encode()) | st.binary(max_size=40)
LIKE = st.fixed_dictionaries({"piece": st.text(max_size=8), "step": JSON, "m": JSON}).map(
    lambda d: json.dumps(d).encode()
)


@given(st.lists(LINE | LIKE, max_size=8), LINE)
def test_no_content_stops_the_page(tmp_path_factory, lines, config):
    folder = tmp_path_factory.mktemp("run")
    (folder / "config.json").write_bytes(config)
    (folder / "metrics.jsonl").write_bytes(b"\n".join(lines))
    page = live_page(read_state(folder))
    assert page.rstrip().endswith("</html>")
    assert "nan" not in page.partition('<div class="plots">')[2].lower().replace("nan-", "")
