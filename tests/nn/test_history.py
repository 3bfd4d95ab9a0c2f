"""A root remembers a bounded number of passes, and knows from where on it has forgotten."""

import pytest
import torch

from flipout.draws.draw import Draw
from flipout.draws.passes import Pass
from flipout.errors import AmbiguousReplay
from flipout.nn import history
from flipout.nn.history import PassHistory, ambiguous
from flipout.nn.spans import Span


def span(start: int, end: int | None, seed: int = 0, *, in_backward: bool = False) -> Span:
    return Span(Pass(Draw(torch.tensor(seed))), start=start, end=end, in_backward=in_backward)


def test_the_oldest_closed_span_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_CAPACITY", 2)
    past = PassHistory()
    spans = [span(0, None), span(10, 20, 1), span(30, 40, 2)]
    for passed in spans:
        past.remember(passed)
    assert past.spans == [spans[0], spans[2]]  # the first is still open
    assert past.forgotten == 20
    assert past.has_draw(Draw(torch.tensor(2)))
    assert not past.has_draw(Draw(torch.tensor(1)))


def test_what_was_dropped_in_backward_is_no_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_CAPACITY", 1)
    past = PassHistory()
    past.remember(span(10, 20, in_backward=True))
    past.remember(span(30, 40))
    assert past.forgotten == 0


def test_a_recomputation_finds_what_was_open(monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner, later = span(0, 50), span(10, 20), span(30, 40)
    past = PassHistory([outer, inner, later])
    monkeypatch.setattr(history, "backward_node_numbers", lambda: [15])
    assert past.recomputed_spans() == [inner, outer]
    past.forgotten = 16
    with pytest.raises(AmbiguousReplay, match=r"forward passes have run since.*flipout\.checkpoint"):
        past.recomputed_spans()
    past.forgotten, inner.thread = 0, -1
    with pytest.raises(AmbiguousReplay, match="several threads"):
        past.recomputed_spans()
    assert "reason" in str(ambiguous("reason"))
