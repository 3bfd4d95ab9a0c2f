"""A bar in a terminal or a notebook, else a line now and then; nothing unless it was asked for."""

import io
import sys
from contextlib import redirect_stderr
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import flipout
from flipout import _progress, bayes
from flipout._progress import Shown, wrapper
from flipout.es._generation import Generation

tqdm = pytest.importorskip("tqdm")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def last_of(stream: io.StringIO) -> str:
    return stream.getvalue().rstrip("\n").split("\r")[-1]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(_progress, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_lines_come_once_a_second_with_the_time_left(clock: SimpleNamespace, capsys) -> None:
    with Shown(10, "", "generations") as shown:
        for i in range(10):
            clock.now += 0.4
            shown.advance(line=Generation(i, 1.0, 2.0, 0.1, 80, 0, 0.4).__str__)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"generation {i}" for i in (2, 5, 8, 9)]
    assert [line.rpartition(", ")[2] for line in lines] == ["3 s left", "2 s left", "0 s left", "0 s left"]


def test_a_loop_prints_its_values_and_reads_them_only_then(clock: SimpleNamespace, capsys) -> None:
    steps = flipout.progress(range(4), "training")
    seen, read = [], []
    loss = type("Read", (float,), {"__repr__": lambda self: read.append(1) or "0.5"})(0.5)
    for step in steps:
        seen.append(step)
        clock.now += 0.6
        steps.note(loss=torch.tensor(1 / 3, requires_grad=True), number=loss)
    assert seen == [0, 1, 2, 3]
    assert len(steps) == 4
    first, last = capsys.readouterr().out.splitlines()
    assert first == "training: 2 of 4 steps, loss 0.3333, number 0.5, 1 s left"
    assert last == "training: 4 of 4 steps, loss 0.3333, number 0.5, 0 s left"


def test_steps_without_a_length_are_counted(clock: SimpleNamespace, capsys) -> None:
    for _ in flipout.progress(iter("abc")):
        clock.now += 2
    assert capsys.readouterr().out.splitlines() == ["1 steps", "2 steps", "3 steps"]


def test_a_terminal_has_a_bar_with_values(capsys) -> None:
    steps = flipout.progress(range(3), "training")
    with redirect_stderr(Terminal()) as terminal:
        for _ in steps:
            steps.note(loss=torch.tensor(0.25))
    shown = last_of(terminal)
    assert shown.startswith("training: 100%|")
    assert "3/3" in shown
    assert "loss 0.25" in shown
    assert capsys.readouterr().out == ""


def test_a_bar_is_closed_where_the_loop_fails() -> None:
    def fail() -> None:
        for step in flipout.progress(range(3), "training"):
            assert 1 / (1 - step)

    with redirect_stderr(Terminal()) as terminal, pytest.raises(ZeroDivisionError):
        fail()
    assert terminal.getvalue().endswith("\n")


def test_without_tqdm_a_terminal_has_lines(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with redirect_stderr(Terminal()) as terminal:
        list(flipout.progress(range(3)))
    assert capsys.readouterr().out.splitlines()[-1] == "3 of 3 steps, 0 s left"
    assert terminal.getvalue() == ""


def test_a_notebook_has_a_bar() -> None:
    with redirect_stderr(type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()) as stream:
        list(flipout.progress(range(3), "training"))
    assert "100%" in last_of(stream)


def test_an_argument_asks_for_it_or_brings_its_own() -> None:
    assert wrapper(list) is list
    assert wrapper(False) is wrapper(None) is iter
    assert wrapper(True) is flipout.progress


@pytest.mark.parametrize("samples", [16, "auto"])
def test_predict_counts_all_rows(samples, capsys) -> None:
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(3, 1), flipout.Gaussian(0.1))
    x = torch.randn(5, 3)
    with redirect_stderr(Terminal()) as terminal:
        plain = bayes.predict(model, x, samples, seed=0, chunk=7)
        assert terminal.getvalue() == ""
        shown = bayes.predict(model, x, samples, seed=0, chunk=7, progress=True)
    assert torch.equal(plain.mean, shown.mean)
    rows = 5 * shown.count
    assert last_of(terminal).startswith(f"predict: {rows} rows" if samples == "auto" else "predict: 100%|")
    assert f" {rows}{'' if samples == 'auto' else f'/{rows}'} " in last_of(terminal)
    assert capsys.readouterr().out == ""


def test_gradient_variance_shows_its_steps(capsys) -> None:
    torch.manual_seed(0)
    model = flipout.perturb(nn.Linear(3, 1), flipout.Gaussian(0.1))
    data = torch.randn(20, 3), torch.randn(20, 1)
    how = {"batch_sizes": [2], "draws": 4, "repeats": 2}
    flipout.variance.measure(model, mse_loss, data, **how)
    flipout.variance.decompose(model, mse_loss, data, pairs=2, batch_size=4, examples=40)
    assert capsys.readouterr().out == ""
    flipout.variance.measure(model, mse_loss, data, **how, progress=True)
    assert capsys.readouterr().out.splitlines()[-1] == "4 of 4 steps, 0 s left"
