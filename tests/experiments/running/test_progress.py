"""Progress is shown when there is something to wait for, in a form that suits the stream."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from flipout.experiments.running import progress
from flipout.experiments.running.progress import RunProgress

ROOT = Path(__file__).parents[3]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def last(self) -> list[str]:
        """The lines left on the screen."""
        frame = self.getvalue().replace("\x1b[?25h", "").rstrip("\n").rpartition("\x1b[2K")[2]
        return [line for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", frame).splitlines() if line.strip()]


@pytest.fixture(autouse=True)
def terminal(monkeypatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def clock(monkeypatch):
    """Each reading of this clock takes a second, unless another time is set."""
    clock = SimpleNamespace(now=0.0, tick=1.0)

    def monotonic() -> float:
        clock.now += clock.tick
        return clock.now

    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=monotonic))
    return clock


def test_elsewhere_a_plain_line_now_and_then(clock):
    stream = io.StringIO()
    with RunProgress(stream) as shown:
        assert list(shown.track(range(20), "train")) == list(range(20))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "train:  30%, 0:06 passed, 0:14 left"
    assert lines[-1] == "train: 100%, 0:20 passed, 0:00 left"
    assert len(lines) == 4
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_nothing_is_left_of_loops_under_a_second(clock, terminal):
    clock.tick = 0.01
    stream = Terminal() if terminal else io.StringIO()
    with RunProgress(stream) as shown:
        for _ in shown.track(range(5), "outer"):
            assert list(shown.track("abc", "inner")) == ["a", "b", "c"]
    assert (stream.last if isinstance(stream, Terminal) else stream.getvalue().splitlines()) == []


def test_the_time_left_goes_by_weight(clock):
    stream = io.StringIO()
    with RunProgress(stream) as shown:
        for weight in shown.track([1, 9], "measure", weight=float):
            clock.now += 10 * weight
    first = stream.getvalue().splitlines()[0]
    assert first == "measure:  10%, 0:11 passed, 1:39 left"


def test_a_loop_that_ends_early_has_no_share_to_tell(clock):
    stream = io.StringIO()
    with RunProgress(stream) as shown:
        for step in shown.track(range(10**4), "train to 85%", most=True):
            if step == 12:
                break
    assert stream.getvalue().splitlines() == ["train to 85%: 0:06 passed", "train to 85%: 0:12 passed"]


def test_hours_are_shown_and_empty_loops_end(clock):
    clock.tick = 2000.0
    stream = io.StringIO()
    with RunProgress(stream) as shown:
        assert list(shown.track([], "nothing")) == []
        assert list(shown.track([1, 2], "weightless", weight=lambda _: 0.0)) == [1, 2]
        assert list(shown.track([1, 2, 3], "long")) == [1, 2, 3]
    assert stream.getvalue().splitlines()[-3:-1] == [
        "long:  33%, 33:20 passed, 1:06:40 left",
        "long:  67%, 1:06:40 passed, 33:20 left",
    ]


def test_bars_on_a_terminal_make_room_for_each_other(clock):
    stream = Terminal()
    with RunProgress(stream) as shown:
        for _ in shown.track(range(3), "outer"):
            for _ in shown.track(range(4), "inner"):
                pass
        shown.say("[a] line of its own")
        for step in shown.track(range(100), "until", most=True):
            if step == 5:
                break
        for step in shown.track(range(100), "given up"):
            if step == 25:
                break
    said = stream.getvalue()
    assert "inner" in said
    assert "━" in said
    assert "[a] line of its own\n" in said
    outer, until, given_up = stream.last
    assert re.match(r"outer +━+ 100 %", outer)
    assert re.match(r"until +━+ 100 %", until)
    assert re.match(r"given up +[━╸╺]+ +25 %", given_up)
    assert said.endswith("\x1b[?25h")  # the cursor is shown again


def test_an_error_inside_of_nested_loops_leaves_the_terminal_in_order(clock):
    stream = Terminal()

    def fail(shown: RunProgress) -> None:
        for _ in shown.track(range(3), "outer"):
            for number in shown.track([1, 0], "inner"):
                assert 1 / number

    with RunProgress(stream) as shown:
        with pytest.raises(ZeroDivisionError):
            fail(shown)
        rest = shown.track("ab", "after")
        assert next(rest) == "a"
    assert stream.getvalue().endswith("\x1b[?25h")
    assert list(rest) == ["b"]
    assert shown.loops == []


def test_ctrl_c_leaves_no_bar_behind(clock):
    stream = Terminal()

    def stopped() -> None:
        with RunProgress(stream) as shown:
            for _ in shown.track(range(3), "outer"):
                for number in shown.track(range(9), "inner"):
                    if number == 5:
                        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert "inner" in stream.getvalue()
    assert stream.last == []
    assert stream.getvalue().endswith("\x1b[?25h")


def test_bars_show_the_time_left_by_kind(clock):
    stream = Terminal()
    items, last = [("fast", 1), ("slow", 1), ("slow", 9)], []
    with RunProgress(stream) as shown:
        for name, weight in shown.track(items, "measure", lambda item: item[1], kind=lambda item: item[0]):
            clock.now += weight * {"fast": 1, "slow": 100}[name]
            shown.bars.refresh()
            last = stream.last
        assert "15:09 left" in " ".join(last)  # 9 · 101 s


def test_the_bar_of_an_outer_loop_moves_with_the_inner_one(clock):
    """Two equal items of 100 s: after 25 s of the first, 75 s of it and the whole second are left."""
    stream, seen = Terminal(), ""
    with RunProgress(stream) as shown:
        for outer in shown.track("ab", "outer"):
            for step in shown.track(range(100), "inner"):
                if (outer, step) == ("a", 25):
                    shown.bars.refresh()
                    seen = stream.last[0]
    assert re.match(r"outer +[━╸╺]+ +(12|13) % ", seen)
    assert re.search(r"2:5\d left", seen)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_stderr_on_a_terminal_gets_bars():
    import pty

    code = (
        "import time; from flipout.experiments.running.progress import RunProgress\n"
        "with RunProgress() as shown:\n"
        "    for _ in shown.track(range(3), 'train'): time.sleep(0.4)"
    )
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=theirs, stdout=subprocess.PIPE, env=environment
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 1024):
                said += part
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(ours)
        assert process.stdout is not None
        assert process.stdout.read() == b""
    assert process.returncode == 0
    assert "━" in said.decode()
    assert "100 %" in said.decode()


def test_elsewhere_nested_loops_share_one_line(clock):
    """The share and the time left are those of the outermost loop, which knows what the inner one has learned."""
    clock.tick = 0.5
    stream = io.StringIO()
    with RunProgress(stream) as shown:
        for name in shown.track("ab", "measure"):
            for _ in shown.track(range(20), f"part {name}"):
                pass
    lines = stream.getvalue().splitlines()
    assert lines[0] == "measure:  26%, 0:06 passed, 0:16 left (part a)"
    assert lines[-1] == "measure: 100%, 0:22 passed, 0:00 left"
    shares = [int(re.match(r"measure: +(\d+)%, \d:\d\d passed, \d:\d\d left", line)[1]) for line in lines]  # pyright: ignore[reportOptionalSubscript]
    assert shares == sorted(shares)


def test_elsewhere_a_loop_around_one_without_an_end_tells_the_time_that_has_passed(clock):
    stream = io.StringIO()
    with RunProgress(stream) as shown:
        for _ in shown.track("ab", "outer"):
            for step in shown.track(range(10**4), "until", most=True):
                if step == 7:
                    break
    assert stream.getvalue().splitlines()[0] == "outer: 0:06 passed (until)"
